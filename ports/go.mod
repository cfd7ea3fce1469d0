module github.com/penstock/penstock/ports

go 1.26.0

require (
	github.com/armon/go-socks5 v0.0.0-20160902184237-e75332964ef5
	github.com/elazarl/goproxy v1.9.3
	github.com/fatedier/golib v0.8.1
	github.com/inetaf/tcpproxy v0.0.0-20260515195445-c159a6051109
	github.com/penstock/penstock v0.0.0-00010101000000-000000000000
	github.com/tidwall/redcon v1.6.4
)

require (
	github.com/golang/snappy v0.0.4 // indirect
	github.com/tidwall/btree v1.1.0 // indirect
	github.com/tidwall/match v1.1.1 // indirect
	golang.org/x/crypto v0.49.0 // indirect
	golang.org/x/net v0.52.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.35.0 // indirect
)

replace github.com/penstock/penstock => ..
