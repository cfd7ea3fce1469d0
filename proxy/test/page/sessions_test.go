package page

import (
	"fmt"
	"net"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/penstock/penstock/proxy/admin"
)

// TestSessions: the list has the sessions that the filters select, a hundred at most of however many, and an endpoint
// leads to its sessions.
func TestSessions(t *testing.T) {
	t.Parallel()
	s := &stage{endpoints: 300, sessions: 20_000, at: began}
	b := openPage(t, s.serve(t))
	rows := `[...document.querySelectorAll("#t-sessions .row")].filter((r) => !r.hidden)`
	eval[bool](b, `(document.getElementById("sessions").scrollIntoView(), true)`)
	b.until("the first hundred", `document.getElementById("sessions-count").textContent === "the first 100"`)
	if n := eval[string](b, `document.querySelector("#t-sessions .table").getAttribute("aria-rowcount")`); n != "101" {
		t.Errorf("the list has %s rows", n)
	}
	seen := `document.querySelector("#t-sessions .foot").textContent`
	b.until("which rows are seen", seen+` === "Rows 1 to 10 of 100: scroll for the others"`)
	eval[bool](b, `(document.querySelector("#t-sessions .rows").scrollTop = 1e6, true)`)
	b.until("which rows are seen at the end", seen+` === "Rows 91 to 100 of 100: scroll for the others"`)
	eval[bool](b, `(document.getElementById("find").scrollIntoView(), true)`)
	b.do(chromedp.Click(chromedp.CSS(`#t-endpoints [data-key="shop-00/app-0000"] button`)))
	b.until("the sessions of an endpoint", `document.getElementById("f-endpoint").value === "app-0000" && `+rows+`.length > 5 && `+rows+`.every((r) => r.children[3].textContent === "app-0000")`)
	b.do(chromedp.Click(chromedp.ID("sessions-clear")), chromedp.Click(chromedp.ID("f-state")), chromedp.KeyEvent("w"+kb.Enter))
	b.until("the sessions that wait", rows+`.length > 5 && `+rows+`.every((r) => r.children[4].textContent === "waiting")`)
}

// TestSessionsOfAProcess: the list has the sessions of a real process, and a filter that the server refuses says why.
func TestSessionsOfAProcess(t *testing.T) {
	t.Parallel()
	p := startProgram(t, two(startServer(t), startServer(t), "10m"))
	b := openPage(t, p.page())
	c, err := net.Dial("tcp", p.State().Listeners[0].Addresses[0])
	must(t, err)
	defer c.Close()
	p.Until("the session", func(s *admin.Status) bool { return s.Upstreams[0].Active == 1 })
	eval[bool](b, `(document.getElementById("sessions").scrollIntoView(), document.getElementById("sessions-refresh").click(), true)`)
	b.until("the session", fmt.Sprintf(`document.querySelector("#t-sessions .row .c-client")?.textContent === %q`, c.LocalAddr()))
	b.do(chromedp.SendKeys(chromedp.ID("f-older"), "soon")) // and no key that ends it
	b.until("the reason", `document.getElementById("sessions-error").textContent.includes("soon")`)
	if got := eval[string](b, `document.getElementById("sessions-count").textContent + [...document.querySelectorAll("#t-sessions .row")].filter((r) => !r.hidden).length`); got != "0" {
		t.Errorf("beside the reason are the sessions of another filter: %s", got)
	}
	if got := b.complaints(); len(got) == 0 {
		t.Error("the server does not refuse it")
	}
}
