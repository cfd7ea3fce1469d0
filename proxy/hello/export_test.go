package hello

var (
	Plain = plain
	Full  = full
)
