module github.com/penstock/penstock/ports

go 1.26.0

require (
	github.com/fatedier/golib v0.8.1
	github.com/hashicorp/yamux v0.1.2
	github.com/inetaf/tcpproxy v0.0.0-20260515195445-c159a6051109
	github.com/penstock/penstock v0.0.0-00010101000000-000000000000
	github.com/soheilhy/cmux v0.1.5
	github.com/tidwall/redcon v1.6.4
	go.etcd.io/etcd/server/v3 v3.6.16
)

require (
	github.com/golang/snappy v0.0.4 // indirect
	github.com/tidwall/btree v1.1.0 // indirect
	github.com/tidwall/match v1.1.1 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.uber.org/zap v1.27.0 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/net v0.61.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/penstock/penstock => ..
