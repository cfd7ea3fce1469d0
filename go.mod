module github.com/penstock/penstock

go 1.26.0

require (
	go.uber.org/goleak v1.2.1
	golang.org/x/sys v0.49.0
	pgregory.net/rapid v1.1.0
)
