package page

import (
	"fmt"
	"io"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/display"
)

// TestNumbersAreTheAPIs: after clients have come, moved bytes and gone, the numbers of the page are those of GET /v1/status.
// How each number is written is in the kept screenshots.
func TestNumbersAreTheAPIs(t *testing.T) {
	t.Parallel()
	p := startProgram(t, two(startServer(t), startServer(t), "10m"))
	b := openPage(t, p.page())
	for i := range 9 {
		c := sockets.Dial(t, p.State().Listeners[0].Addresses[0])
		_, err := c.Write(make([]byte, 1000*(i+1)))
		must(t, err)
		_, err = io.ReadFull(c, make([]byte, 1000*(i+1)))
		must(t, err)
		c.Close()
	}
	p.Until("no session is left", func(s *admin.Status) bool { return s.Connections.Active == 0 && s.Connections.Accepted == 9 })
	st := p.State()
	for tile, want := range map[string]string{
		"sessions": fmt.Sprintf("0of %d at most", st.Connections.Most),
		"accepted": "09 ever",
		"received": "0 B/s" + display.Bytes(st.Bytes.ClientToEndpoint.All()) + " ever",
		"sent":     "0 B/s" + display.Bytes(st.Bytes.EndpointToClient.All()) + " ever",
	} {
		b.until(tile+" is "+want, fmt.Sprintf(`[...document.querySelector("[data-tile=%s]").children].slice(1, 3).map((c) => c.textContent.replaceAll("\u202f", "")).join("") === %q`, tile, want))
	}
	for _, e := range st.Upstreams[0].Endpoints {
		for column, want := range map[string]int64{"total": e.Total, "active": e.Active} {
			b.until(fmt.Sprintf("%s of endpoint %s is %d", column, e.Name, want),
				fmt.Sprintf(`document.querySelector("#t-endpoints [data-key='shop/%s'] .c-%s").textContent === "%d"`, e.Name, column, want))
		}
	}
}
