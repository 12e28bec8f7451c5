/* Attention of one query row over parts that are stored exactly or as codes, in one pass over each part; and, for
 * the many rows of a prompt, codes turned back into values.
 *
 * For one row codes are never turned into values. With value = minimum + scale * (code - offset),
 *   q . k           = scale * (q . code) + (minimum - scale * offset) * sum(q)      groups along channels
 *   q . k           = (q scale) . code + q . (minimum - scale * offset)             groups along tokens
 * and the same for the weighted sum of values. A chunk of tokens gives an output and a log-sum-exp; chunks
 * are merged in a fixed order, so the result does not depend on the number of threads.
 *
 * Bits below 8 are unpacked lane by lane ("all low halves, then all high halves"): a dot product does not
 * care in which order channels come, so the query is put in that order once, and the output back.
 *
 * Plain C with vectorizable loops; knows nothing of Python. Called from kernel.py, where the layout of the
 * two structures is repeated.
 */
#include <stdint.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

enum { MOST_CHANNELS = 256, BLOCK = 64, CHUNK = 256, MOST_GROUP = 32, LEAST_SPAN = 8, EXACT = 32 };
enum { MOST_METADATA = BLOCK * MOST_CHANNELS / LEAST_SPAN };

typedef struct { /* K or V of a part; head h begins at data + h * head_bytes, metadata at h * meta_stride */
  const uint8_t *data;
  const void *scale, *minimum; /* minimum may be absent */
  int64_t head_bytes, meta_stride, bits, group_tokens, group_channels, half, offset;
} Side;

typedef struct {
  const float *query; /* (H, D) */
  int64_t tokens;
  Side key, value;
} Part;

typedef struct { int64_t kv_heads, group, channels; float scale; } Shape;

/* ---- small pieces ------------------------------------------------------------------------------------- */

static inline float half_to_float(uint16_t bits) { /* finite values and subnormals; metadata is never inf */
  union { uint32_t i; float f; } wide = {(uint32_t)(bits & 0x7fff) << 13}, big = {0x77800000u}; /* 2^112 */
  wide.f *= big.f;
  wide.i |= (uint32_t)(bits & 0x8000) << 16;
  return wide.f;
}

typedef float Eight __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint8_t Sixteen __attribute__((vector_size(16), aligned(1), may_alias));
typedef int32_t EightInts __attribute__((vector_size(32)));

/* e^x of eight x <= 0, within 2 units in the last place; below -87 as at -87 (Cephes' polynomial). */
static inline Eight exp_eight(Eight x) {
  EightInts low = x < -87.0f;
  x = (Eight)(((EightInts)x & ~low) | ((EightInts)(x * 0 - 87.0f) & low));
  EightInts whole = __builtin_convertvector(x * 1.44269504f - 0.5f, EightInts); /* to the nearest */
  Eight n = __builtin_convertvector(whole, Eight), r = x - n * 0.693359375f + n * 2.12194440e-4f;
  Eight p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return (p * r * r + r + 1.0f) * (Eight)((whole + 127) << 23);
}

static inline Eight larger(Eight a, Eight b) {
  EightInts first = a > b;
  return (Eight)(((EightInts)a & first) | ((EightInts)b & ~first));
}

/* `count` numbers of metadata from place `at` on, as floats */
static void metadata(const void *from, int64_t half, int64_t at, int64_t count, float *out) {
  if (half) {
    const uint16_t *x = (const uint16_t *)from + at;
    int64_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= count; i += 8) _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + i))));
#endif
    for (; i < count; i++) out[i] = half_to_float(x[i]);
  } else {
    memcpy(out, (const float *)from + at, count * sizeof(float));
  }
}

/* Scales, and what a code of 0 stands for. */
static void scales(const Side *side, int64_t head, int64_t at, int64_t count, float *scale, float *zero) {
  at += head * side->meta_stride;
  metadata(side->scale, side->half, at, count, scale);
  if (side->minimum)
    metadata(side->minimum, side->half, at, count, zero);
  else
    for (int64_t i = 0; i < count; i++) zero[i] = -scale[i] * (float)side->offset;
}

/* The same for `count` tokens from t on and each of their groups along channels, turned: (spans, BLOCK). */
static void rows_of(const Side *side, int64_t head, int64_t t, int64_t count, int64_t spans, float *scale,
                    float *zero) {
  float own_scale[MOST_METADATA], own_zero[MOST_METADATA];
  int64_t apart = side->group_tokens == 1 ? spans : 0; /* else the tokens are all of one group */
  if (apart == 1) { /* nothing to turn */
    scales(side, head, t, count, scale, zero);
    return;
  }
  scales(side, head, t / side->group_tokens * spans, apart ? count * spans : spans, own_scale, own_zero);
  for (int64_t j = 0; j < spans; j++)
    for (int64_t i = 0; i < count; i++) {
      scale[j * BLOCK + i] = own_scale[i * apart + j];
      zero[j * BLOCK + i] = own_zero[i * apart + j];
    }
}

/* Channels that are unpacked together: a group along channels, or all. */
static inline int64_t span_of(const Side *side, int64_t channels) {
  return side->group_channels > 1 ? side->group_channels : channels;
}

/* place[p]: the channel that stands at place p of an unpacked token */
static void order(const Side *side, int64_t channels, int *place) {
  int64_t lanes = side->bits < 8 ? (side->bits == 3 ? 8 : 8 / side->bits) : 1, span = span_of(side, channels);
  for (int64_t base = 0; base < channels; base += span)
    for (int64_t lane = 0; lane < lanes; lane++)
      for (int64_t i = 0; i < span / lanes; i++) place[base + lane * (span / lanes) + i] = base + i * lanes + lane;
}

/* to[lane * n + i] = lane of from[i], 16 or 8 bytes at a time where there are so many */
#define LANES(BITS)                                                                                  \
  static inline void unpack_##BITS(const uint8_t *restrict from, uint8_t *restrict to, int64_t n) {  \
    int64_t i = 0;                                                                                   \
    for (; i + 16 <= n; i += 16)                                                                     \
      for (int lane = 0; lane < 8 / BITS; lane++)                                                    \
        *(Sixteen *)(to + lane * n + i) =                                                            \
            *(const Sixteen *)(from + i) >> (BITS * lane) & (uint8_t)((1 << BITS) - 1);              \
    for (; i + 8 <= n; i += 8) {                                                                     \
      uint64_t word, one;                                                                            \
      memcpy(&word, from + i, 8);                                                                    \
      for (int lane = 0; lane < 8 / BITS; lane++) {                                                  \
        one = word >> (BITS * lane) & 0x0101010101010101u * ((1 << BITS) - 1);                       \
        memcpy(to + lane * n + i, &one, 8);                                                          \
      }                                                                                              \
    }                                                                                                \
    for (; i < n; i++)                                                                               \
      for (int lane = 0; lane < 8 / BITS; lane++) to[lane * n + i] = (from[i] >> (BITS * lane)) & ((1 << BITS) - 1); \
  }
LANES(4)
LANES(2)

static inline void unpack_3(const uint8_t *restrict from, uint8_t *restrict to, int64_t n) {
  for (int64_t i = 0; i < n; i++) { /* 8 codes in 3 bytes */
    uint32_t word = from[3 * i] | from[3 * i + 1] << 8 | from[3 * i + 2] << 16;
    for (int lane = 0; lane < 8; lane++) to[lane * n + i] = (word >> (3 * lane)) & 7;
  }
}

/* `pieces` pieces of n bytes, n known to the compiler for the usual groups */
#define PIECES(BITS)                                                                                   \
  static void unpack_all_##BITS(const uint8_t *restrict from, uint8_t *restrict to, int64_t pieces,   \
                                int64_t n) {                                                          \
    if (n == 32)                                                                                      \
      for (; pieces > 0; pieces--, from += 32, to += 32 * 8 / BITS) unpack_##BITS(from, to, 32);      \
    else if (n == 16)                                                                                 \
      for (; pieces > 0; pieces--, from += 16, to += 16 * 8 / BITS) unpack_##BITS(from, to, 16);      \
    else                                                                                              \
      for (; pieces > 0; pieces--, from += n, to += n * 8 / BITS) unpack_##BITS(from, to, n);         \
  }
PIECES(4)
PIECES(2)

/* Codes (tokens, D), a byte each: those stored, or unpacked into `room`. */
static const uint8_t *bytes_of(const Side *side, int64_t head, int64_t t, int64_t count, int64_t channels,
                               uint8_t *room) {
  int64_t span = span_of(side, channels), packed = span * side->bits / 8, pieces = count * channels / span;
  const uint8_t *from = side->data + head * side->head_bytes + t * (channels * side->bits / 8);
  if (side->bits == 8) return from;
  if (side->bits == 4) unpack_all_4(from, room, pieces, packed);
  if (side->bits == 2) unpack_all_2(from, room, pieces, packed);
  if (side->bits == 3)
    for (int64_t s = 0; s < pieces; s++) unpack_3(from + s * packed, room + s * span, span / 8);
  return room;
}

static inline float sum_of(const float *x, int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; i++) sum += x[i];
  return sum;
}

/* ---- keys: dot products ------------------------------------------------------------------------------- */

/* Eight channels as floats, and the sums of four such vectors: the loops around them are the hot ones, and
 * compilers find these instructions by intrinsics only. */
#define widen_float(from) (*(const Eight *)(from))

#if defined(__AVX2__)
static inline Eight widen_uint8_t(const uint8_t *from) {
  return (Eight)_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)from)));
}
static inline Eight eight_of(const float *x) { return (Eight)_mm256_broadcast_ss(x); }
static inline void sum_four(Eight a, Eight b, Eight c, Eight d, float *to) {
  __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps((__m256)a, (__m256)b), _mm256_hadd_ps((__m256)c, (__m256)d));
  _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
}
#else
static inline Eight widen_uint8_t(const uint8_t *from) {
  Eight to;
  for (int i = 0; i < 8; i++) to[i] = from[i];
  return to;
}
static inline Eight eight_of(const float *x) { return (Eight){*x, *x, *x, *x, *x, *x, *x, *x}; }
static inline void sum_four(Eight a, Eight b, Eight c, Eight d, float *to) {
  memset(to, 0, 4 * sizeof(float));
  for (int i = 0; i < 8; i++) to[0] += a[i], to[1] += b[i], to[2] += c[i], to[3] += d[i];
}
#endif

/* out[g * CHUNK + t] = q[g] . row t over `span` of `stride` channels, for G <= 3 query heads and four tokens at
 * once: a code is widened once for all heads, and a query is loaded once for all four tokens. */
#define DOTS(NAME, TYPE, G)                                                                                \
  static void NAME(const TYPE *restrict rows, const float *restrict q, int64_t count, int64_t span,         \
                   int64_t stride, float *restrict out) {                                                   \
    for (int64_t t = 0; t < count; t += 4) {                                                                \
      const TYPE *row[4];                                                                                   \
      Eight sum[4][G] = {0};                                                                                \
      float last[4];                                                                                        \
      for (int k = 0; k < 4; k++) row[k] = rows + (t + k < count ? t + k : count - 1) * stride;             \
      for (int64_t i = 0; i < span; i += 8) {                                                               \
        Eight query[G];                                                                                     \
        for (int g = 0; g < G; g++) query[g] = widen_float(q + g * stride + i);                             \
        for (int k = 0; k < 4; k++) {                                                                       \
          Eight x = widen_##TYPE(row[k] + i);                                                               \
          for (int g = 0; g < G; g++) sum[k][g] += query[g] * x;                                            \
        }                                                                                                   \
      }                                                                                                     \
      for (int g = 0; g < G; g++) {                                                                         \
        float *to = t + 4 <= count ? out + g * CHUNK + t : last;                                            \
        sum_four(sum[0][g], sum[1][g], sum[2][g], sum[3][g], to);                                           \
        if (to == last) memcpy(out + g * CHUNK + t, last, (count - t) * sizeof(float));                     \
      }                                                                                                     \
    }                                                                                                       \
  }
#define DOTS_OF(TYPE)                                                                                       \
  DOTS(dots_##TYPE##_1, TYPE, 1)                                                                            \
  DOTS(dots_##TYPE##_2, TYPE, 2)                                                                            \
  DOTS(dots_##TYPE##_3, TYPE, 3)                                                                            \
  static void dots_##TYPE(const TYPE *rows, const float *q, int64_t group, int64_t count, int64_t span,     \
                          int64_t stride, float *out) {                                                     \
    for (; group > 0; group -= 3, q += 3 * stride, out += 3 * CHUNK) {                                      \
      if (group >= 3) dots_##TYPE##_3(rows, q, count, span, stride, out);                                   \
      if (group == 2) dots_##TYPE##_2(rows, q, count, span, stride, out);                                   \
      if (group == 1) dots_##TYPE##_1(rows, q, count, span, stride, out);                                   \
    }                                                                                                       \
  }
DOTS_OF(float)
DOTS_OF(uint8_t)

/* How many tokens from t on share metadata along tokens, at most BLOCK and not past `stop`. */
static inline int64_t piece_of(const Side *side, int64_t t, int64_t stop) {
  int64_t count = stop - t < BLOCK ? stop - t : BLOCK;
  if (side->bits != EXACT && side->group_tokens > 1) {
    int64_t left = side->group_tokens - t % side->group_tokens;
    if (left < count) count = left;
  }
  return count;
}

/* Scores (G, CHUNK) of tokens [first, stop) of one KV head; q (G, D) in the order of the codes. */
static void key_scores(const Side *side, int64_t head, int64_t first, int64_t stop, int64_t group,
                       int64_t channels, const int *place, const float *q, float *out) {
  uint8_t room[BLOCK * MOST_CHANNELS];
  float scale[MOST_METADATA], zero[MOST_METADATA];
  float folded[MOST_GROUP * MOST_CHANNELS], part[MOST_GROUP * CHUNK];
  float sums[MOST_GROUP * MOST_CHANNELS / LEAST_SPAN]; /* of a query over each span */
  int64_t span = side->group_channels, spans = channels / span;
  if (side->bits != EXACT && span > 1)
    for (int64_t n = 0; n < group * spans; n++) sums[n] = sum_of(q + n * span, span);
  for (int64_t t = first, count; t < stop; t += count) {
    count = piece_of(side, t, stop);
    float *to = out + (t - first);
    if (side->bits == EXACT) {
      const float *rows = (const float *)(side->data + head * side->head_bytes) + t * channels;
      dots_float(rows, q, group, count, channels, channels, to);
      continue;
    }
    const uint8_t *codes = bytes_of(side, head, t, count, channels, room);
    int64_t n = t / side->group_tokens;
    if (side->group_channels == 1) {
      float base[MOST_GROUP], s[MOST_CHANNELS], z[MOST_CHANNELS];
      scales(side, head, n * channels, channels, scale, zero);
      for (int64_t p = 0; p < channels; p++) s[p] = scale[place[p]], z[p] = zero[place[p]];
      for (int64_t g = 0; g < group; g++) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t p = 0; p < channels; p++) {
          folded[g * channels + p] = q[g * channels + p] * s[p];
          sum += q[g * channels + p] * z[p];
        }
        base[g] = sum;
      }
      dots_uint8_t(codes, folded, group, count, channels, channels, to);
      for (int64_t g = 0; g < group; g++)
        for (int64_t i = 0; i < count; i++) to[g * CHUNK + i] += base[g];
      continue;
    }
    rows_of(side, head, t, count, spans, scale, zero);
    for (int64_t j = 0; j < spans; j++) {
      dots_uint8_t(codes + j * span, q + j * span, group, count, span, channels, part);
      for (int64_t g = 0; g < group; g++) {
        float sum = sums[g * spans + j];
        for (int64_t i = 0; i < count; i++) {
          float s = part[g * CHUNK + i] * scale[j * BLOCK + i] + sum * zero[j * BLOCK + i];
          to[g * CHUNK + i] = j ? to[g * CHUNK + i] + s : s;
        }
      }
    }
  }
}

/* ---- values: weighted sums ---------------------------------------------------------------------------- */

/* out[g * stride + c] += sum over tokens of w[g * CHUNK + t] * rows[t * stride + c], for G <= 3 query heads and
 * VECTORS * 8 channels: with their sums, weights and a value they just fit the registers. */
#define SUMS(NAME, TYPE, G, VECTORS)                                                                  \
  static void NAME(const TYPE *restrict rows, const float *restrict w, int64_t count, int64_t stride, \
                   float *restrict out) {                                                             \
    Eight sum[G][VECTORS] = {0};                                                                      \
    for (int64_t t = 0; t < count; t++, rows += stride) {                                             \
      Eight weight[G];                                                                                \
      _Pragma("GCC unroll 4") for (int g = 0; g < G; g++) weight[g] = eight_of(w + g * CHUNK + t);                             \
      _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++) {                                                             \
        Eight x = widen_##TYPE(rows + 8 * v);                                                         \
        _Pragma("GCC unroll 4") for (int g = 0; g < G; g++) sum[g][v] += weight[g] * x;                                       \
      }                                                                                               \
    }                                                                                                 \
    _Pragma("GCC unroll 4") for (int g = 0; g < G; g++)                                                                       \
      _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++) *(Eight *)(out + g * stride + 8 * v) += sum[g][v];            \
  }
#define SUMS_OF(TYPE)                   \
  SUMS(sums_##TYPE##_1_4, TYPE, 1, 4)   \
  SUMS(sums_##TYPE##_2_4, TYPE, 2, 4)   \
  SUMS(sums_##TYPE##_3_4, TYPE, 3, 4)   \
  SUMS(sums_##TYPE##_1_1, TYPE, 1, 1)   \
  SUMS(sums_##TYPE##_2_1, TYPE, 2, 1)   \
  SUMS(sums_##TYPE##_3_1, TYPE, 3, 1)   \
  static void sums_##TYPE(const TYPE *rows, const float *w, int64_t group, int64_t count, int64_t span, \
                          int64_t stride, float *out) {                                                 \
    for (; group > 0; group -= 3, w += 3 * CHUNK, out += 3 * stride) {                                  \
      int64_t c = 0;                                                                                    \
      for (; c + 32 <= span; c += 32) {                                                                 \
        if (group >= 3) sums_##TYPE##_3_4(rows + c, w, count, stride, out + c);                         \
        if (group == 2) sums_##TYPE##_2_4(rows + c, w, count, stride, out + c);                         \
        if (group == 1) sums_##TYPE##_1_4(rows + c, w, count, stride, out + c);                         \
      }                                                                                                 \
      for (; c < span; c += 8) {                                                                        \
        if (group >= 3) sums_##TYPE##_3_1(rows + c, w, count, stride, out + c);                         \
        if (group == 2) sums_##TYPE##_2_1(rows + c, w, count, stride, out + c);                         \
        if (group == 1) sums_##TYPE##_1_1(rows + c, w, count, stride, out + c);                         \
      }                                                                                                 \
    }                                                                                                   \
  }
SUMS_OF(float)
SUMS_OF(uint8_t)

/* Adds the weighted sum of tokens [first, stop) to out (G, D), in the order of the codes. */
static void value_sums(const Side *side, int64_t head, int64_t first, int64_t stop, int64_t group,
                       int64_t channels, const int *place, const float *weights, float *out) {
  uint8_t room[BLOCK * MOST_CHANNELS];
  float scale[MOST_METADATA], zero[MOST_METADATA];
  float folded[MOST_GROUP * CHUNK], sums[MOST_GROUP * MOST_CHANNELS];
  for (int64_t t = first, count; t < stop; t += count) {
    count = piece_of(side, t, stop);
    const float *w = weights + (t - first);
    if (side->bits == EXACT) {
      const float *rows = (const float *)(side->data + head * side->head_bytes) + t * channels;
      sums_float(rows, w, group, count, channels, channels, out);
      continue;
    }
    const uint8_t *codes = bytes_of(side, head, t, count, channels, room);
    if (side->group_channels == 1) {
      scales(side, head, t / side->group_tokens * channels, channels, scale, zero);
      memset(sums, 0, group * channels * sizeof(float));
      sums_uint8_t(codes, w, group, count, channels, channels, sums);
      for (int64_t g = 0; g < group; g++) {
        float total = sum_of(w + g * CHUNK, count);
        for (int64_t p = 0; p < channels; p++)
          out[g * channels + p] += sums[g * channels + p] * scale[place[p]] + total * zero[place[p]];
      }
      continue;
    }
    int64_t span = side->group_channels, spans = channels / span;
    rows_of(side, head, t, count, spans, scale, zero);
    for (int64_t j = 0; j < spans; j++) {
      for (int64_t g = 0; g < group; g++) {
        float base = 0;
#pragma omp simd reduction(+ : base)
        for (int64_t i = 0; i < count; i++) {
          folded[g * CHUNK + i] = w[g * CHUNK + i] * scale[j * BLOCK + i];
          base += w[g * CHUNK + i] * zero[j * BLOCK + i];
        }
        for (int64_t p = 0; p < span; p++) out[g * channels + j * span + p] += base;
      }
      sums_uint8_t(codes + j * span, folded, group, count, span, channels, out + j * span);
    }
  }
}

/* ---- a chunk, and the merge --------------------------------------------------------------------------- */

/* One chunk of one KV head. read: (G, D + 2): the output, not normalised; its peak; its total. */
static void read_chunk(const Part *part, int64_t head, int64_t first, int64_t stop, const Shape *shape,
                       float *scores, int64_t score_stride, float *read) {
  int64_t channels = shape->channels, group = shape->group, count = stop - first;
  int place[MOST_CHANNELS];
  float q[MOST_GROUP * MOST_CHANNELS], weights[MOST_GROUP * CHUNK], sums[MOST_GROUP * MOST_CHANNELS];
  const float *query = part->query + head * group * channels;
  order(&part->key, channels, place);
  for (int64_t g = 0; g < group; g++)
    for (int64_t p = 0; p < channels; p++) q[g * channels + p] = query[g * channels + place[p]] * shape->scale;
  key_scores(&part->key, head, first, stop, group, channels, place, q, weights);
  for (int64_t g = 0; g < group; g++) {
    float *w = weights + g * CHUNK, *to = read + g * (channels + 2), peak = w[0], total = 0;
    if (scores) memcpy(scores + g * score_stride, w, count * sizeof(float));
    for (int64_t i = count; i % 8; i++) w[i] = w[0];
    Eight top = *(Eight *)w;
    for (int64_t i = 8; i < count; i += 8) top = larger(top, *(Eight *)(w + i));
    for (int i = 0; i < 8; i++) peak = top[i] > peak ? top[i] : peak;
    for (int64_t i = count; i % 8; i++) w[i] = peak - 100;
    Eight sum = {0};
    for (int64_t i = 0; i < count; i += 8) {
      Eight e = exp_eight(*(Eight *)(w + i) - peak);
      *(Eight *)(w + i) = e;
      sum += e;
    }
    for (int i = 0; i < 8; i++) total += sum[i];
    to[channels] = peak;
    to[channels + 1] = total;
  }
  memset(sums, 0, group * channels * sizeof(float));
  order(&part->value, channels, place);
  value_sums(&part->value, head, first, stop, group, channels, place, weights, sums);
  for (int64_t g = 0; g < group; g++)
    for (int64_t p = 0; p < channels; p++) read[g * (channels + 2) + place[p]] = sums[g * channels + p];
}

/* out (H, D) and lse (H), from `reads` chunks of (G, D + 2) each KV head. */
static void merge(const float *chunks, int64_t reads, const Shape *shape, float *out, float *peaks, float *totals) {
  int64_t channels = shape->channels, group = shape->group, row = channels + 2;
  for (int64_t head = 0; head < shape->kv_heads * group; head++) {
    const float *mine = chunks + (head / group * reads * group + head % group) * row;
    float peak = mine[channels], total = 0, *to = out + head * channels;
    for (int64_t r = 1; r < reads; r++)
      peak = mine[r * group * row + channels] > peak ? mine[r * group * row + channels] : peak;
    memset(to, 0, channels * sizeof(float));
    for (int64_t r = 0; r < reads; r++) {
      const float *read = mine + r * group * row;
      float share = exp_eight((Eight){0} + (read[channels] - peak))[0];
      total += share * read[channels + 1];
      for (int64_t c = 0; c < channels; c++) to[c] += share * read[c];
    }
    for (int64_t c = 0; c < channels; c++) to[c] /= total;
    peaks[head] = peak;
    totals[head] = total;
  }
}

/* How many floats `room` of kvviz_decode must hold. */
int64_t kvviz_room(const Part *parts, int64_t n_parts, int64_t kv_heads, int64_t group, int64_t channels) {
  int64_t chunks = 0;
  for (int64_t p = 0; p < n_parts; p++) chunks += (parts[p].tokens + CHUNK - 1) / CHUNK;
  return chunks * kv_heads * group * (channels + 2);
}

/* Output (H, D); its log-sum-exp (H) is peaks + log(totals). `scores`, if any: (H, all tokens). */
void kvviz_decode(const Part *parts, int64_t n_parts, int64_t kv_heads, int64_t group, int64_t channels,
                  float scale, int64_t threads, float *room, float *scores, float *out, float *peaks,
                  float *totals) {
  const Shape shape = {kv_heads, group, channels, scale};
  int64_t chunks = 0, tokens = 0;
  for (int64_t p = 0; p < n_parts; p++) {
    chunks += (parts[p].tokens + CHUNK - 1) / CHUNK;
    tokens += parts[p].tokens;
  }
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1)
  for (int64_t item = 0; item < chunks * kv_heads; item++) {
    int64_t head = item / chunks, chunk = item % chunks, before = 0, p = 0;
    for (; chunk >= (parts[p].tokens + CHUNK - 1) / CHUNK; p++) {
      chunk -= (parts[p].tokens + CHUNK - 1) / CHUNK;
      before += parts[p].tokens;
    }
    int64_t first = chunk * CHUNK, stop = first + CHUNK < parts[p].tokens ? first + CHUNK : parts[p].tokens;
    read_chunk(&parts[p], head, first, stop, &shape,
               scores ? scores + head * group * tokens + before + first : 0, tokens,
               room + item * group * (channels + 2));
  }
  merge(room, chunks, &shape, out, peaks, totals);
}

/* ---- codes as values ---------------------------------------------------------------------------------- */

/* n codes in their own order, a byte each, from a stream of `bits` bits a code */
static void in_order(const uint8_t *restrict from, int64_t bits, int64_t n, uint8_t *restrict to) {
  if (bits == 4)
    for (int64_t i = 0; i < n / 2; i++) to[2 * i] = from[i] & 15, to[2 * i + 1] = from[i] >> 4;
  if (bits == 2)
    for (int64_t i = 0; i < n / 4; i++)
      for (int lane = 0; lane < 4; lane++) to[4 * i + lane] = from[i] >> (2 * lane) & 3;
  if (bits == 3)
    for (int64_t i = 0; i < n / 8; i++) {
      uint32_t word = from[3 * i] | from[3 * i + 1] << 8 | from[3 * i + 2] << 16;
      for (int lane = 0; lane < 8; lane++) to[8 * i + lane] = word >> (3 * lane) & 7;
    }
}

/* Tokens [t, t + count) of one head, which share their metadata along tokens where there is any such group. */
static void restore_piece(const Side *side, int64_t head, int64_t t, int64_t count, int64_t channels, float *out) {
  uint8_t room[BLOCK * MOST_CHANNELS];
  float scale[MOST_METADATA], base[MOST_METADATA];
  int64_t span = side->group_channels, spans = channels / span;
  const uint8_t *codes = side->data + head * side->head_bytes + t * (channels * side->bits / 8);
  if (side->bits < 8) {
    in_order(codes, side->bits, count * channels, room);
    codes = room;
  }
  int64_t apart = side->group_tokens == 1 ? spans : 0; /* else one row of metadata serves them all */
  int64_t at = head * side->meta_stride + t / side->group_tokens * spans, many = apart ? count * spans : spans;
  metadata(side->scale, side->half, at, many, scale);
  if (side->minimum) metadata(side->minimum, side->half, at, many, base);
  else memset(base, 0, many * sizeof(float));
  const float offset = (float)side->offset;
  for (int64_t i = 0; i < count; i++, codes += channels, out += channels) {
    const float *s = scale + i * apart, *b = base + i * apart;
    if (span == 1)
      for (int64_t c = 0; c < channels; c += 8)
        *(Eight *)(out + c) = widen_float(b + c) + (widen_uint8_t(codes + c) - offset) * widen_float(s + c);
    else
      for (int64_t j = 0; j < spans; j++)
        for (int64_t c = j * span; c < (j + 1) * span; c += 8)
          *(Eight *)(out + c) = b[j] + (widen_uint8_t(codes + c) - offset) * s[j];
  }
}

/* Values (H_kv, T, D) of everything that a side holds as codes. */
void kvviz_restore(const Side *side, int64_t kv_heads, int64_t tokens, int64_t channels, int64_t threads, float *out) {
  int64_t blocks = (tokens + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int64_t item = 0; item < kv_heads * blocks; item++) {
    int64_t head = item / blocks, t = item % blocks * BLOCK, stop = t + BLOCK < tokens ? t + BLOCK : tokens;
    for (int64_t count; t < stop; t += count) {
      count = piece_of(side, t, stop);
      restore_piece(side, head, t, count, channels, out + (head * tokens + t) * channels);
    }
  }
}
