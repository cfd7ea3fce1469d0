package page

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/proxy/admin"
)

// TestKilledEndpointTurnsRed: an endpoint that is killed is red on the page, with the cause in words, soon after the
// verdict on it; and not any more when it is back.
func TestKilledEndpointTurnsRed(t *testing.T) {
	t.Parallel()
	victim := startServer(t)
	p := startProgram(t, two(startServer(t), victim, "10m"))
	b := openPage(t, p.page())
	row := `document.querySelector('#t-endpoints [data-key="shop/b"]')`
	b.until("the endpoint is up", row+`?.dataset.level === "ok"`)
	ok := eval[string](b, `getComputedStyle(`+row+`.querySelector("span")).color`)
	victim.kill()
	p.Until("the verdict", func(s *admin.Status) bool { return s.Upstreams[0].Endpoints[1].State == admin.Down })
	verdict := time.Now()
	b.until("the endpoint is down", row+`?.dataset.level === "down"`)
	if took := time.Since(verdict); took > within {
		t.Errorf("the page shows the verdict after %v", took)
	}
	red := eval[string](b, `getComputedStyle(`+row+`.querySelector("span")).color`)
	if want := eval[string](b, `(() => { const e = document.createElement("i"); e.style.color = "var(--down)"; document.body.append(e); const c = getComputedStyle(e).color; e.remove(); return c; })()`); red != want || red == ok {
		t.Errorf("its state is %s, and was %s; red is %s", red, ok, want)
	}
	if why := eval[string](b, row+`.querySelector(".c-why").textContent`); !strings.Contains(why, "connection refused") {
		t.Errorf("its cause is %q", why)
	}
	if first := eval[string](b, `[...document.querySelectorAll("#t-endpoints .row")].find((r) => r.style.transform === "translateY(0px)").dataset.key`); first != "shop/b" {
		t.Errorf("the first row is %s", first)
	}
	if n := eval[string](b, `document.querySelector("#levels [data-level=down] b").textContent`); n != "1" {
		t.Errorf("%s endpoints are down", n)
	}
	b.until("the problem is listed", `document.getElementById("problems").textContent.includes("endpoint shop/b")`)
}

// TestConfirmAndRollBack: the file on disk is compared, reloaded, confirmed and taken back, by the mouse and by the
// keyboard.
func TestConfirmAndRollBack(t *testing.T) {
	t.Parallel()
	first, second := startServer(t), startServer(t)
	for name, use := range map[string]func(*browser, string){"mouse": (*browser).press, "keyboard": (*browser).reach} {
		t.Run(name, func(t *testing.T) {
			p := startProgram(t, two(first, second, "10m"))
			b := openPage(t, p.page())
			b.until("generations", `document.querySelectorAll("#generations tbody tr").length === 1 && document.getElementById("rollback").disabled`)
			p.Configure(two(first, second, "7m"))
			use(b, "plan")
			b.until("the plan", `document.getElementById("changes").textContent.includes("listener web") && !document.getElementById("reload").disabled`)
			b.until("its time", `/^At \d\d:\d\d:\d\d, .*: 1 change against generation 1/.test(document.getElementById("plan-note").textContent)`)
			if n := p.State().Generation; n != 1 {
				t.Fatalf("a plan makes generation %d", n)
			}
			use(b, "reload")
			b.until("a question", `document.getElementById("ask").open`)
			b.do(chromedp.KeyEvent(kb.Escape))
			b.until("no question", `!document.getElementById("ask").open`)
			if n := p.State().Generation; n != 1 {
				t.Fatalf("a question that is not answered makes generation %d", n)
			}
			use(b, "reload")
			b.until("a question", `document.getElementById("ask").open`)
			use(b, "ask-yes")
			b.until("the reload waits", `!document.getElementById("pending").hidden && document.getElementById("pending-title").textContent.includes("2")`)
			if st := p.State(); st.Generation != 2 || st.Pending == nil {
				t.Fatalf("the status has generation %d, waiting %+v", st.Generation, st.Pending)
			}
			b.until("the comparison is gone", `document.getElementById("plan-note").textContent.startsWith("Compares the file") && document.getElementById("changes").children.length === 0 && document.getElementById("reload").disabled`)
			use(b, "pending-confirm")
			b.until("it is confirmed", `document.getElementById("pending").hidden && document.querySelector('[data-generation="2"] td:nth-child(2)').textContent === "current"`)
			if st := p.State(); st.Generation != 2 || st.Pending != nil {
				t.Errorf("the status has generation %d, waiting %+v", st.Generation, st.Pending)
			}
			use(b, "rollback")
			b.until("a question", `document.getElementById("ask").open && document.activeElement.id === "ask-yes"`)
			use(b, "ask-yes")
			b.until("it is taken back", `document.getElementById("generation").textContent === "1" && document.querySelector('[data-generation="2"] td:nth-child(2)').textContent === "rolled back"`)
			if n := p.State().Generation; n != 1 {
				t.Errorf("generation %d is in force", n)
			}
			g, err := p.Generations(t.Context())
			must(t, err)
			b.until("its author", fmt.Sprintf(`document.querySelector('[data-generation="2"] td:last-child').textContent === "asked for by " + %q`, g.History[0].By))
			p.Configure("nonsense: true\n")
			use(b, "plan")
			b.until("the file is wrong", `document.getElementById("plan-note").dataset.level === "down" && document.getElementById("plan-note").textContent.includes("nonsense")`)
			if got := b.complaints(); len(got) != 1 || !strings.Contains(got[0], "422") {
				t.Errorf("the console has %q", got)
			}
		})
	}
}

// TestReloadComparesAgain: the question before a reload is about the file as it is then, and not as it was compared.
func TestReloadComparesAgain(t *testing.T) {
	t.Parallel()
	first, second := startServer(t), startServer(t)
	p := startProgram(t, two(first, second, "10m"))
	b := openPage(t, p.page())
	p.Configure(two(first, second, "7m"))
	b.press("plan")
	b.until("the plan", `!document.getElementById("reload").disabled`)
	p.Configure(two(first, second, "10m"))
	b.press("reload")
	b.until("there is no change any more", `document.getElementById("plan-note").textContent.includes("no change") && document.getElementById("reload").disabled`)
	if eval[bool](b, `document.getElementById("ask").open`) || p.State().Generation != 1 {
		t.Error("it asks, or reloads, without a change")
	}
}

func (b *browser) reach(id string) {
	b.Helper()
	b.focusOn("#" + id)
}

// focusOn goes to a node by the key Tab, and presses the key Enter.
func (b *browser) focusOn(selector string) {
	b.Helper()
	const farthest = 120
	for range farthest {
		if eval[bool](b, fmt.Sprintf(`document.activeElement === document.querySelector(%q)`, selector)) {
			b.do(chromedp.KeyEvent(kb.Enter))
			return
		}
		b.do(chromedp.KeyEvent(kb.Tab))
	}
	b.Fatalf("%s is not reached by %d steps", selector, farthest)
}

// TestFiltersOfEndpoints: the list has the endpoints of a filter, sorted by the column that is chosen, also by keys.
func TestFiltersOfEndpoints(t *testing.T) {
	t.Parallel()
	s := &stage{endpoints: 300, sessions: 3000, at: began}
	b := openPage(t, s.serve(t))
	keys := func() string {
		return eval[string](b, `[...document.querySelectorAll("#t-endpoints .row")].filter((r) => !r.hidden).sort((a, b) => a.at - b.at).slice(0, 3).map((r) => r.dataset.key).join()`)
	}
	wants := func(what, want string) {
		t.Helper()
		if got := keys(); got != want {
			t.Errorf("%s: the first rows are %s, want %s", what, got, want)
		}
	}
	wants("at first", "shop-00/app-0005,shop-00/app-0023,shop-01/app-0102")
	b.do(chromedp.Click(chromedp.CSS(`#levels [data-level="off"]`)))
	wants("those that are out", "shop-00/app-0060,shop-01/app-0157,shop-02/app-0254")
	b.do(chromedp.Click(chromedp.CSS(`#levels [data-level="all"]`)), chromedp.Click(chromedp.CSS(`#t-endpoints .head .c-total button`)))
	wants("by sessions ever", "shop-00/app-0049,shop-00/app-0099,shop-01/app-0149")
	b.do(chromedp.KeyEvent("/"))
	if id := eval[string](b, `document.activeElement.id`); id != "find" {
		t.Errorf("the key / leads to %q", id)
	}
	eval[bool](b, `(document.activeElement.value = "") === ""`) // a simulated key is typed although the page has taken it
	b.do(chromedp.KeyEvent("app-02"))
	wants("by a name", "shop-02/app-0249,shop-02/app-0299,shop-02/app-0248")
	if n := eval[string](b, `document.querySelector("#t-endpoints .table").getAttribute("aria-rowcount")`); n != "101" {
		t.Errorf("%s rows", n)
	}
	b.do(chromedp.KeyEvent(" refused"))
	b.until("nothing fits", `!document.querySelector("#t-endpoints .empty").hidden`)
}

// TestTheme: the theme is that of the system, or the one that is chosen, which a reload of the page keeps.
func TestTheme(t *testing.T) {
	t.Parallel()
	s := &stage{endpoints: 3, sessions: 30, at: began}
	b := openPage(t, s.serve(t))
	back := func() string { return eval[string](b, `getComputedStyle(document.body).backgroundColor`) }
	dark := func(yes bool) {
		t.Helper()
		b.colours(yes)
	}
	dark(false)
	light := back()
	dark(true)
	if back() == light {
		t.Error("the page does not follow the system")
	}
	b.do(chromedp.KeyEvent("t"))
	if back() != light {
		t.Error("light was chosen")
	}
	b.do(chromedp.Reload())
	b.until("the page again", `document.documentElement?.dataset.event > 0`)
	if got := eval[string](b, `document.documentElement.dataset.theme`); got != "light" || back() != light {
		t.Errorf("after a reload the theme is %s", got)
	}
}

// TestHostileNames: text of the network is shown as it is, and never becomes a part of the page.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	const bad = `<img src=x onerror=alert(1)>"'&amp;`
	s := &stage{endpoints: 3, sessions: 30, at: began, name: bad}
	b := openPage(t, s.serve(t))
	b.until("the endpoint", `document.querySelector("#t-endpoints .row .c-name button")?.textContent === `+fmt.Sprintf("%q", bad))
	if n := eval[int](b, `document.querySelectorAll("#t-endpoints img").length`); n != 0 {
		t.Errorf("%d images in the list", n)
	}
}

// TestPolicyHolds: a script and a style within the page are refused, and so are other hosts. So the test of every
// page would have seen them.
func TestPolicyHolds(t *testing.T) {
	t.Parallel()
	s := &stage{endpoints: 3, sessions: 30, at: began}
	b := openPage(t, s.serve(t))
	for name, script := range map[string]string{
		"script-src":  `(() => { const s = document.createElement("script"); s.textContent = "window.ran = true"; document.body.append(s); return true })()`,
		"style-src":   `(() => { document.body.setAttribute("style", "color: red"); return true })()`,
		"connect-src": `fetch("http://127.0.0.1:1/").then(() => true, () => true)`,
	} {
		eval[bool](b, script)
		got := ""
		if !condition.Eventually(func() bool {
			got += strings.Join(b.complaints(), "\n")
			return strings.Contains(got, `"policy:" "`+name)
		}) {
			t.Errorf("%s: %q", name, got)
		}
	}
	b.complaints()
	if eval[bool](b, `window.ran === true`) {
		t.Error("the script ran")
	}
}

// TestNodesStay: at 10,000 endpoints, of which all change, the list has a few nodes, and none comes or goes.
func TestNodesStay(t *testing.T) {
	t.Parallel()
	s := &stage{endpoints: 10_000, sessions: 100_000, at: began, runs: true}
	b := openPage(t, s.serve(t))
	b.until("a third event", `document.documentElement.dataset.event > 2`)
	if n := eval[int](b, `document.querySelectorAll("*").length`); n > 2500 {
		t.Errorf("the page has %d nodes", n)
	}
	eval[bool](b, `(() => { window.moved = []; new MutationObserver((list) => { for (const m of list) for (const n of [...m.addedNodes, ...m.removedNodes]) if (n.nodeType === 1) moved.push(n.outerHTML); }).observe(document.body, { childList: true, subtree: true }); return true })()`)
	last := eval[int](b, `Number(document.documentElement.dataset.event)`)
	b.until("three more events", fmt.Sprintf(`document.documentElement.dataset.event >= %d`, last+3))
	if got := eval[[]string](b, `moved`); len(got) > 0 {
		t.Errorf("nodes came or went: %q", got)
	}
	eval[bool](b, `(() => { document.querySelector("#t-endpoints .rows").scrollTop = 32 * 5000; return true })()`)
	b.until("the middle of the list", `[...document.querySelectorAll("#t-endpoints .row")].some((r) => r.at === 5005 && r.textContent)`)
}
