//go:build ports

package ports

// The packages that are patched. Their versions, and those that their tests need, are in go.mod; no file of
// this module is built with them.
import (
	_ "github.com/armon/go-socks5"
	_ "github.com/elazarl/goproxy"
	_ "github.com/fatedier/golib/io"
	_ "github.com/inetaf/tcpproxy"
	_ "github.com/tidwall/redcon"
)
