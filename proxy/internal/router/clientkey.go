package router

import (
	"cmp"
	"strings"

	"github.com/penstock/penstock/proxy/internal/clientkey"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
)

// request is the input of a pick among the endpoints of snap, beside those that the client has tried. A client
// without the key of snap is hashed by its source, as if there was none.
func (s *Search) request(snap *UpstreamSnapshot) (r lb.Request) {
	if snap.BySource {
		r.Source = s.client.Source().AddrPort()
		r.Key = lb.KeyOf(s.valueOf(snap.HashKey))
	}
	return r
}

// unkeyed reports whether the client lacks the key by which its upstream picks.
func (s *Search) unkeyed() bool {
	k := s.snapshot.HashKey
	return k.Kind != clientkey.Source && s.snapshot.BySource && s.valueOf(k) == ""
}

// valueOf returns a property of the client; empty: it is not known. Its source is not looked at here.
func (s *Search) valueOf(k clientkey.Key) string {
	switch k.Kind {
	case clientkey.SNI:
		if s.offloaded.conn() != nil {
			return strings.ToLower(s.offloaded.tls.ServerName)
		}
		return s.client.Hello.ServerName
	case clientkey.User:
		return cmp.Or(s.client.Postgres.User, s.client.First.User.Value)
	case clientkey.Database:
		return cmp.Or(s.client.Postgres.Database, s.client.First.Database.Value)
	case clientkey.TLV:
		value, _ := proxyproto.Find(s.client.Header.TLVs, proxyproto.Type(k.Type))
		return string(value)
	}
	return ""
}
