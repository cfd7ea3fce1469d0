package server_test

import (
	"fmt"
	"net"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
)

// TestStatusOfBinds: the status counts clients by bind address, also after the address moves to
// another listener.
func TestStatusOfBinds(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	path := filepath.Join(t.TempDir(), "s")
	text := func(web, other string) string {
		return fmt.Sprintf("listeners: [{name: web, bind: [%s], upstream: a}, {name: other, bind: [%s], upstream: a}]\nupstreams: [{name: a, endpoints: [%q]}]", web, other, a)
	}
	bind := fmt.Sprintf("%q", "unix:"+path+"?mode=0600")
	r := start(t, text(`"127.0.0.1:0", `+bind, `"[::1]:0"`))
	has := func(listener string, want ...admin.Bind) {
		t.Helper()
		for _, l := range r.Status().Listeners {
			if l.Name == listener && !reflect.DeepEqual(l.Binds, want) {
				t.Errorf("%s has %+v, want %+v", listener, l.Binds, want)
			}
		}
	}
	for range 2 {
		line(t, client(t, r.At("web")))
	}
	c, err := net.DialTimeout("unix", path, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	line(t, c)
	has("web", admin.Bind{Bind: "127.0.0.1:0", Active: 2}, admin.Bind{Bind: "unix:" + path + "?mode=0600", Active: 1})
	has("other", admin.Bind{Bind: "[::1]:0"})
	r.Reload(text(`"127.0.0.1:0"`, bind))
	has("web", admin.Bind{Bind: "127.0.0.1:0", Active: 2})
	has("other", admin.Bind{Bind: "unix:" + path + "?mode=0600", Active: 1})
}
