package page

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/rollback"
)

// cut lists the nodes that are beyond the page or whose content is cut without a cue: an ellipsis is one. Titles of
// tables are left out where a small screen has none.
const cut = `(() => {
	const list = [], name = (e) => e.tagName.toLowerCase() + (e.id && "#" + e.id) + "." + e.className + " " + JSON.stringify(e.textContent.slice(0, 40));
	for (const e of document.querySelectorAll("body *")) {
		const style = getComputedStyle(e), box = e.getBoundingClientRect();
		if (!box.width || !box.height || e.closest(".skip, .unseen, .rows .space, .chart, dialog:not([open]), .plain thead") || /^(INPUT|SELECT|OPTION)$/.test(e.tagName)) continue;
		if (box.right > innerWidth + 1) list.push("beyond the page: " + name(e));
		if (style.overflowX !== "visible" && e.scrollWidth > e.clientWidth + 1 && style.textOverflow !== "ellipsis") list.push("cut at the side: " + name(e));
		if (style.overflowY === "hidden" && e.scrollHeight > e.clientHeight + 2) list.push("cut below: " + name(e));
	}
	for (const e of document.querySelectorAll(".row:not([hidden]) .c-state, .row:not([hidden]) .c-state span, .tiles dt, .tiles dd, .problems span, .facts dd:not(#version), .badge, .plain td")) {
		if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline") list.push("shortened: " + name(e));
	}
	return list;
})()`

// longer makes values of the events longer that are those of the server.
const longer = `{
	const parse = JSON.parse, text = "has no usable endpoint: " + "connect: connection refused, ".repeat(8);
	JSON.parse = (json) => {
		const event = parse(json);
		const process = event?.rows?.process?.[""];
		if (process) Object.assign(process, { started: new Date(event.at - 364.97 * 86400000).toISOString(), pid: 4194304, version: "v1.2.3-0.20261126130000-0123456789ab+dirty" });
		if (event?.rows?.problems) event.rows.problems[""] = Array.from({ length: 12 }, (_, i) => ({ severity: i < 9 ? "outage" : "warning", text: "upstream shop-" + i + " " + text, since: new Date(event.at).toISOString() }));
		return event;
	};
}`

// crowded is a stage in an outage, with long values everywhere.
func crowded() *stage {
	long := strings.Repeat("a-long-name-", 6)
	s := &stage{endpoints: 240, sessions: 8412, at: time.Now(), name: long}
	s.denied = []admin.Denial{{Source: "2001:db8:1234:5678:9abc:def0:1234:5678/128", Listener: long, Until: s.at.Add(300 * 24 * time.Hour), Since: s.at, By: "uid=1000 (" + long + ") pid=4194304"}}
	s.Reloader = longGenerations{by: "uid=1000 (" + long + ") pid=4194304"}
	s.change = func(st *admin.Status) {
		st.State = admin.Draining
		st.Live = append(st.Live, admin.LiveChange{What: "endpoint " + long + "/" + long + ": drain", By: "uid=1000 pid=4194304", Since: s.at, Waits: "discovery has not found the endpoint"})
		u := &st.Upstreams[1]
		u.Name = long
		u.Outage = &admin.UpstreamOutage{Since: s.at}
		u.Endpoints[0].State, u.Endpoints[0].Why = admin.Down, strings.Repeat("connect: connection refused, ", 8)
		u.Endpoints[0].Total, u.Endpoints[0].Failures = 999_999_999, 999_999
	}
	return s
}

// longGenerations are generations with long texts.
type longGenerations struct {
	admin.Reloader
	by string
}

func (g longGenerations) Generations() rollback.Status {
	waits := &rollback.Waiting{Generation: 12345, Until: time.Now().Add(7 * time.Minute), RollbackIf: "failures>50000", Increase: 41234}
	return rollback.Status{Current: 12345, Previous: 12344, Pending: waits, History: []rollback.Record{
		{Generation: 12345, State: rollback.Pending, At: began, By: g.by, Changes: slices.Repeat([]string{"endpoint " + g.by + " added"}, 41)},
		{Generation: 12344, State: rollback.RolledBack, At: began, By: g.by, Why: "asked for by " + g.by, Changes: []string{}},
		{Generation: 12343, State: rollback.RolledBack, At: began, By: "SIGHUP", Why: "failures rose by 51234, the bound is failures>50000; upstream shop: its last endpoint", Changes: []string{"limits changed: connections: 1 → 2"}},
	}}
}

func (g longGenerations) Rollback(context.Context, int, string) (admin.RolledBack, error) {
	return admin.RolledBack{Generation: 12344}, nil
}

// TestNothingIsCut: at four widths, in an outage and with long values, nothing is wider than the page, and nothing is cut
// without a cue; also with all problems, a dialog and messages, which cover no row.
func TestNothingIsCut(t *testing.T) {
	t.Parallel()
	url := crowded().serve(t)
	b := startBrowser(t)
	b.before(longer)
	b.size(1440, 900)
	b.open(url)
	b.until("generations", `document.querySelectorAll("#generations tbody tr").length === 3 && document.querySelectorAll("#hands tbody tr").length === 3`)
	b.until("a state", `document.querySelector('#t-upstreams [data-level="down"] .c-state')?.textContent === "no endpoint"`)
	for _, width := range []int64{390, 768, 820, 1024, 1440} {
		b.size(width, 900)
		b.until("the width", fmt.Sprintf(`innerWidth === %d`, width))
		eval[bool](b, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`)
		b.whole(width, "at rest")
		b.press("problems-more")
		b.until("all problems", `document.querySelectorAll("#problems li").length === 12`)
		b.whole(width, "with all problems")
		b.press("problems-more")
		b.until("fewer problems", `document.querySelectorAll("#problems li").length === 4`)
		eval[bool](b, `(document.querySelector("#t-endpoints .row:not([hidden]) .c-act button").click(), true)`)
		b.whole(width, "in the dialog of an endpoint")
		b.press("one-close")
		b.press("pending-rollback")
		b.until("a question", `document.getElementById("ask").open`)
		b.press("ask-yes")
		b.until("a message", `document.querySelector("#messages .message") !== null`)
		eval[bool](b, `(scrollTo(0, 0), true)`)
		b.whole(width, "with a message")
		if !eval[bool](b, `document.getElementById("messages").getBoundingClientRect().bottom <= document.querySelector("main").getBoundingClientRect().top`) {
			t.Errorf("%d pixels: the message covers the page", width)
		}
		eval[bool](b, `(document.querySelectorAll("#messages button").forEach((x) => x.click()), true)`)
	}
}

// whole reports all that is cut, or wider than the page.
func (b *browser) whole(width int64, when string) {
	b.Helper()
	if over := eval[int64](b, `document.documentElement.scrollWidth`); over > width {
		b.Errorf("%s the page is %d pixels wide on a screen of %d", when, over, width)
	}
	for _, problem := range eval[[]string](b, cut) {
		b.Errorf("%d pixels, %s: %s", width, when, problem)
	}
}
