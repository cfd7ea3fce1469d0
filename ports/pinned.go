//go:build ports

package ports

// The packages that are patched. Their versions, and those that their tests need, are in go.mod; no file of
// this module is built with them.
import (
	_ "github.com/fatedier/golib/io"
	_ "github.com/hashicorp/yamux"
	_ "github.com/inetaf/tcpproxy"
	_ "github.com/soheilhy/cmux"
	_ "github.com/tidwall/redcon"
	_ "go.etcd.io/etcd/server/v3/proxy/tcpproxy"
)
