package page

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// one is the button of an endpoint that leads to what can be done with it.
func one(endpoint string) string {
	return fmt.Sprintf(`#t-endpoints [data-key=%q] .c-act button`, endpoint)
}

// open opens the dialog of an endpoint, by the mouse.
func (b *browser) openEndpoint(endpoint string) {
	b.Helper()
	b.do(chromedp.Click(chromedp.CSS(one(endpoint))))
	b.until("the endpoint", `document.getElementById("one").open`)
}

// TestDrainAndReady: an endpoint is drained and ready again, by the mouse and by keys, each after a question; its cause has the
// author, and so has the list of changes by hand.
func TestDrainAndReady(t *testing.T) {
	t.Parallel()
	p := startProgram(t, two(startServer(t), startServer(t), "10m"))
	b := openPage(t, p.page())
	state := func() admin.State { return p.State().Upstreams[0].Endpoints[1].State }
	b.until("the endpoint", `document.querySelector('`+one("shop/b")+`') !== null`)

	b.openEndpoint("shop/b")
	if !eval[bool](b, `document.getElementById("one-ready").disabled`) {
		t.Error("an endpoint that is up can be made ready")
	}
	b.press("one-drain")
	b.until("a question", `document.getElementById("ask").open && document.getElementById("ask-text").textContent.includes("1 other endpoint takes clients of shop")`)
	b.do(chromedp.KeyEvent(kb.Escape))
	b.until("no question", `!document.getElementById("ask").open`)
	if got := state(); got != admin.Up {
		t.Fatalf("a question that is not answered makes it %s", got)
	}
	b.openEndpoint("shop/b")
	b.press("one-drain")
	b.until("a question", `document.getElementById("ask").open`)
	b.press("ask-yes")
	b.until("a message", `document.getElementById("messages").textContent.includes("shop/b: ready → drain. 1 endpoint of shop takes clients.")`)
	by := p.State().Live[0].By
	cause := `document.querySelector('#t-endpoints [data-key="shop/b"] .c-why').textContent`
	b.until("the author", fmt.Sprintf(`%s.startsWith("drain by " + %q + " at ")`, cause, by))
	b.until("the list", fmt.Sprintf(`document.getElementById("hands").textContent.includes("endpoint shop/b: drain" + %q)`, by))
	if got := state(); got != admin.Draining {
		t.Errorf("it is %s", got)
	}

	b.focusOn(one("shop/b"))
	b.until("the endpoint", `document.getElementById("one").open && document.getElementById("one-by-hand").textContent.startsWith("drain by ")`)
	b.reach("one-ready")
	b.until("a question", `document.getElementById("ask").open`)
	b.reach("ask-yes")
	b.until("it is up", `document.querySelector('#t-endpoints [data-key="shop/b"]').dataset.level === "ok" && document.getElementById("hand-count").textContent === "nothing"`)
	if got := state(); got != admin.Up {
		t.Errorf("it is %s", got)
	}
}

// TestEndSessionsOfAnEndpoint: its sessions are counted first, and end gently after the question; those of the other one stay.
func TestEndSessionsOfAnEndpoint(t *testing.T) {
	t.Parallel()
	p := startProgram(t, two(startServer(t), startServer(t), "10m"))
	b := openPage(t, p.page())
	const each = 3
	address := p.State().Listeners[0].Addresses[0]
	for range 2 * each {
		c, err := net.Dial("tcp", address)
		must(t, err)
		defer c.Close()
	}
	active := func(s *admin.Status) [2]int64 {
		return [2]int64{s.Upstreams[0].Endpoints[0].Active, s.Upstreams[0].Endpoints[1].Active}
	}
	p.Until("the sessions", func(s *admin.Status) bool { return active(s) == [2]int64{each, each} })
	b.openEndpoint("shop/b")
	b.press("one-end")
	b.until("the count", fmt.Sprintf(`document.getElementById("ask").open && document.getElementById("ask-title").textContent === "End %d sessions of shop/b?"`, each))
	if s := p.State(); active(s) != [2]int64{each, each} {
		t.Errorf("the question leaves %v sessions", active(s))
	}
	b.press("ask-yes")
	b.until("they have ended", fmt.Sprintf(`document.getElementById("messages").textContent.includes("shop/b: %d sessions ended.")`, each))
	p.Until("those of the other endpoint", func(s *admin.Status) bool { return active(s) == [2]int64{each, 0} })
}

// TestDenialsOnThePage: a denial is listed with its author and its end, and is removed after a question.
func TestDenialsOnThePage(t *testing.T) {
	t.Parallel()
	p := startProgram(t, two(startServer(t), startServer(t), "10m"))
	d, err := p.Deny(t.Context(), "203.0.113.7", "web", time.Hour, false)
	must(t, err)
	b := openPage(t, p.page())
	row := `document.querySelector('#hands [data-source="203.0.113.7"]')`
	b.until("the denial", fmt.Sprintf(`%[1]s?.children[0].textContent === "203.0.113.7 is denied at listener web" && %[1]s.children[1].textContent === %[2]q && %[1]s.children[3].textContent === %[3]q`, row, d.By, d.Until.UTC().Format(time.TimeOnly)))
	b.focusOn(`#hands [data-source="203.0.113.7"] button`)
	b.until("a question", `document.getElementById("ask").open`)
	if list, err := p.Denied(t.Context()); err != nil || len(list.Denied) != 1 {
		t.Errorf("the question leaves %+v: %v", list, err)
	}
	b.reach("ask-yes")
	b.until("no denial", `document.getElementById("hand-count").textContent === "nothing"`)
	if list, err := p.Denied(t.Context()); err != nil || len(list.Denied) != 0 {
		t.Errorf("denied: %+v: %v", list, err)
	}
}

// TestReaderIsRefused: who may only read sees the list, and is refused each change with a message that stays.
func TestReaderIsRefused(t *testing.T) {
	t.Parallel()
	s := &stage{endpoints: 3, sessions: 30, at: began}
	s.denied = []admin.Denial{{Source: "203.0.113.7", Until: time.Now().Add(time.Hour), Since: time.Now(), By: "uid=7"}}
	bind := "127.0.0.1:" + sockets.Port(t)
	s.prepare(t, admin.Access{Bind: bind, ReadToken: "read", ChangeToken: "change"})
	client, err := admin.NewClientAs(bind, &admin.Credentials{Token: "read"})
	must(t, err)
	b := openPage(t, gate(t, client))
	b.until("the list", `document.querySelector('#hands [data-source] button') !== null`)
	for _, id := range []string{"one-drain", "one-end"} {
		b.openEndpoint("shop-00/app-0000")
		b.press(id)
		if id == "one-drain" {
			b.until("a question", `document.getElementById("ask").open`)
			b.press("ask-yes")
		}
		b.refused(id)
	}
	b.do(chromedp.Click(chromedp.CSS(`#hands [data-source] button`)))
	b.until("a question", `document.getElementById("ask").open`)
	b.press("ask-yes")
	b.refused("the denial")
}

func (b *browser) refused(what string) {
	b.Helper()
	b.until(what+" is refused", `document.querySelector('#messages [data-level=down]')?.textContent.includes("change") ?? false`)
	b.do(chromedp.Click(chromedp.CSS(`#messages [data-level=down] button`)))
	b.until("the message is closed", `document.querySelector('#messages [data-level=down]') === null`)
	if got := b.complaints(); len(got) != 1 || !strings.Contains(got[0], "403") {
		b.Errorf("%s: the console has %q", what, got)
	}
}
