module github.com/penstock/penstock/lane

go 1.26.0

require (
	github.com/cilium/ebpf v0.22.0
	github.com/penstock/penstock v0.1.0
)

require (
	go.uber.org/goleak v1.2.1 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
