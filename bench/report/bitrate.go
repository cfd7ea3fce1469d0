package report

// BitRate formats bits per second: 8.20 Gbit/s.
func BitRate(n Number) string { return Ratio(float64(n)/1e9) + " Gbit/s" }
