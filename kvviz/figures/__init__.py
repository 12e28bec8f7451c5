"""Room: how does it look? Records to plain data, data to plotly figures. Knows no engine and no page."""
