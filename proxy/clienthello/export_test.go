package clienthello

var (
	Plain = plain
	Full  = full
)
