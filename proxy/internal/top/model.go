package top

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/display"
)

// The tabs.
const (
	tabEndpoints = iota
	tabListeners
	tabUpstreams
	tabSessions
	tabLoops
	tabProblems
	tabCount
)

var tabNames = [tabCount]string{"endpoints", "listeners", "upstreams", "sessions", "loops", "problems"}

// A Model is the state of the view. It implements [tea.Model], and only its messages change it.
type Model struct {
	config Config
	ctx    context.Context // for requests

	now, before *Look
	picture     *picture // made from these looks; nil before the first
	why         *admin.Why
	asking      bool  // a request for verdicts is in progress
	err         error // of the last request, or nil

	width, height int
	tab           int
	sorts         [tabCount]sorting
	cursor, first [tabCount]int // the chosen row, and the first visible row
	shown         table         // the rows of the tab, filtered and sorted
	filter        string
	typing        bool // the user is typing the filter
	paused        bool
}

// unsorted stands for a table's own order.
const unsorted = 1 << 16

// NewModel returns the model of a view of a process. Its requests end when ctx ends.
func NewModel(ctx context.Context, c Config) *Model {
	m := &Model{config: c, ctx: ctx, width: 80, height: 24}
	for tab := range m.sorts {
		m.sorts[tab].column = unsorted
	}
	m.sorts[tabLoops].column = 0
	return m
}

// The messages of the view, besides the terminal's.
type (
	lookMsg struct {
		look Look
		err  error
	}
	whyMsg struct {
		why admin.Why
		err error
	}
	dueMsg struct{} // the next look is due
)

// Init asks for the first look.
func (m *Model) Init() tea.Cmd { return m.look }

func (m *Model) look() tea.Msg {
	l, err := see(m.ctx, m.config.Source)
	return lookMsg{l, err}
}

// askWhy asks for the verdicts on the time until the next look.
func (m *Model) askWhy() tea.Msg {
	y, err := m.config.Source.Why(m.ctx, admin.WhyQuery{For: min(m.config.Interval, admin.MaxWhy)})
	return whyMsg{y, err}
}

// Update takes a message.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return m, m.key(msg.String(), msg.Text)
	case lookMsg:
		return m, m.looked(msg)
	case whyMsg:
		return m, m.judged(msg)
	case dueMsg:
		if m.paused {
			return m, m.wait(m.config.Interval)
		}
		return m, m.look
	}
	return m, nil
}

// wait returns the time until the next look.
func (m *Model) wait(d time.Duration) tea.Cmd {
	return tea.Tick(d, func(time.Time) tea.Msg { return dueMsg{} })
}

// looked takes a look. Without an answer the previous look stays.
func (m *Model) looked(msg lookMsg) tea.Cmd {
	if m.err = msg.err; m.err != nil {
		return m.wait(m.config.Interval)
	}
	if !m.paused { // the look may have been requested before the pause
		m.before, m.now = m.now, &msg.look
		m.picture = pictureOf(m.before, m.now)
		m.show()
	}
	return tea.Batch(m.wait(msg.look.pause(m.config.Interval)), m.inspect())
}

// inspect asks for verdicts while the user looks at them.
func (m *Model) inspect() tea.Cmd {
	if m.tab != tabSessions || m.paused || m.asking {
		return nil
	}
	m.asking = true
	return m.askWhy
}

func (m *Model) judged(msg whyMsg) tea.Cmd {
	m.asking = false
	if m.err = msg.err; m.err != nil || m.paused {
		return nil // the next look asks again
	}
	m.why = &msg.why
	m.show()
	return m.inspect()
}

func (m *Model) show() {
	m.shown = table{}
	if m.picture == nil {
		return
	}
	of := m.table()
	m.shown = table{of.columns, slices.Clone(of.rows)}
	m.shown.filter(m.filter)
	m.shown.sort(m.sorts[m.tab])
	m.scroll(0)
}

func (m *Model) table() table {
	switch m.tab {
	case tabListeners:
		return m.picture.listeners
	case tabUpstreams:
		return m.picture.upstreams
	case tabLoops:
		return m.picture.loops
	case tabProblems:
		return m.picture.problems
	case tabSessions:
		if m.why == nil {
			return table{columns: sessionColumns}
		}
		return sessionTable(m.why)
	}
	return m.picture.endpoints
}

// scroll moves the cursor, and the visible rows with it.
func (m *Model) scroll(by int) {
	last := len(m.shown.rows) - 1
	at := max(min(m.cursor[m.tab]+by, last), 0)
	m.cursor[m.tab] = at
	rows := max(m.place().rows, 1)
	first := &m.first[m.tab]
	*first = max(min(*first, at, last-rows+1), 0)
	*first = max(*first, at-rows+1)
}

// key handles a key, by its name and its text.
func (m *Model) key(name, text string) tea.Cmd {
	if name == "ctrl+c" {
		return tea.Quit
	}
	if m.typing {
		m.edit(name, text)
		return nil
	}
	page := max(m.place().rows, 1)
	switch name {
	case "q":
		return tea.Quit
	case "ctrl+z":
		return tea.Suspend
	case "p", "space", " ":
		m.paused = !m.paused
		return m.inspect()
	case "/":
		m.typing = true
	case "esc":
		m.filter = ""
		m.show()
	case "s":
		m.resort(1)
	case "S":
		m.resort(-1)
	case "r":
		m.sorts[m.tab].reversed = !m.sorts[m.tab].reversed
		m.show()
	case "tab", "right", "l":
		return m.choose((m.tab + 1) % tabCount)
	case "shift+tab", "left", "h":
		return m.choose((m.tab + tabCount - 1) % tabCount)
	case "up", "k":
		m.scroll(-1)
	case "down", "j":
		m.scroll(1)
	case "pgup":
		m.scroll(-page)
	case "pgdown":
		m.scroll(page)
	case "home", "g":
		m.scroll(-len(m.shown.rows))
	case "end", "G":
		m.scroll(len(m.shown.rows))
	default:
		if tab := strings.Index("123456", name); tab >= 0 && len(name) == 1 {
			return m.choose(tab)
		}
	}
	return nil
}

func (m *Model) choose(tab int) tea.Cmd {
	m.tab = tab
	m.show()
	return m.inspect()
}

// resort sorts by the next or the previous column. After the last column comes the table's own order.
func (m *Model) resort(by int) {
	n := len(m.shown.columns)
	if n == 0 {
		return
	}
	s := &m.sorts[m.tab]
	s.reversed = false
	s.column = (min(s.column, n) + by + n + 1) % (n + 1)
	m.show()
}

// maxFilter limits the length of the filter.
const maxFilter = 100

func (m *Model) edit(name, text string) {
	switch name {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, ""
	case "backspace":
		if r := []rune(m.filter); len(r) > 0 {
			m.filter = string(r[:len(r)-1])
		}
	default:
		if len(m.filter)+len(text) <= maxFilter {
			m.filter += oneLine(text)
		}
	}
	m.show()
}

// A rate is a number per second. A negative rate is unknown.
type rate float64

const unknown rate = -1

// between returns the rate of a counter. It is unknown without a time, or if the counter has decreased.
func between(before, now int64, d time.Duration) rate {
	if d <= 0 || now < before {
		return unknown
	}
	return rate(float64(now-before) / d.Seconds())
}

// count formats a rate of things: 0, 0.3, 12.5, 1234, 56.7k.
func (r rate) count() string {
	switch {
	case r < 0:
		return "-"
	case r == 0:
		return "0"
	case r < 99.95:
		return fmt.Sprintf("%.1f", float64(r))
	case r < 9999.5:
		return fmt.Sprintf("%.0f", float64(r))
	case r < 999_950:
		return fmt.Sprintf("%.1fk", float64(r)/1e3)
	}
	return fmt.Sprintf("%.1fM", float64(r)/1e6)
}

func (r rate) bytes() string {
	switch {
	case r < 0:
		return "-"
	case r == 0:
		return "0"
	}
	return display.Bytes(int64(r + 0.5))
}

// flow is bytes per second: in from clients, and out to them.
type flow struct{ in, out rate }

func flowOf(before, now *admin.Bytes, d time.Duration) flow {
	return flow{
		between(before.ClientToEndpoint.All(), now.ClientToEndpoint.All(), d),
		between(before.EndpointToClient.All(), now.EndpointToClient.All(), d),
	}
}

// earlier finds things in the previous look by their names.
type earlier struct {
	time      time.Duration // between the looks; 0 without a previous look
	status    *admin.Status
	listeners map[string]*admin.Listener
	upstreams map[string]*admin.Upstream
	endpoints map[endpointKey]*admin.Endpoint
}

// An endpointKey identifies an endpoint of an upstream. A removed endpoint and its replacement may have the same name.
type endpointKey struct {
	upstream, name string
	removed        bool
}

func keyOf(upstream string, e *admin.Endpoint) endpointKey {
	return endpointKey{upstream, e.Name, e.State == admin.Removed}
}

func earlierOf(before, now *Look) earlier {
	e := earlier{
		status: new(admin.Status), listeners: make(map[string]*admin.Listener), upstreams: make(map[string]*admin.Upstream), endpoints: make(map[endpointKey]*admin.Endpoint),
	}
	if before == nil || !before.same(now) {
		return e
	}
	e.time, e.status = now.At.Sub(before.At), &before.Status
	for i := range e.status.Listeners {
		l := &e.status.Listeners[i]
		e.listeners[l.Name] = l
	}
	for i := range e.status.Upstreams {
		u := &e.status.Upstreams[i]
		e.upstreams[u.Name] = u
		for j := range u.Endpoints {
			e.endpoints[keyOf(u.Name, &u.Endpoints[j])] = &u.Endpoints[j]
		}
	}
	return e
}

// was returns a thing of the look before, and the time since then. The time is 0 if the thing was not there.
func was[K comparable, T any](e *earlier, things map[K]*T, key K) (before *T, since time.Duration) {
	if thing := things[key]; thing != nil {
		return thing, e.time
	}
	return new(T), 0
}

// inAll formats a rate of bytes for a line that does not name its columns.
func inAll(r rate) string {
	if r == 0 {
		return "0 B"
	}
	return r.bytes()
}

func (p *picture) totals(c *admin.Connections) string {
	active := fmt.Sprint(c.Active)
	if c.Most > 0 {
		active = fmt.Sprintf("%d/%d", c.Active, c.Most)
	}
	return fmt.Sprintf("clients %s  new %s/s  refused %s/s  in %s/s  out %s/s  loop turn p99 %s, max %s",
		active, p.accepted.count(), p.refused.count(), inAll(p.flow.in), inAll(p.flow.out), span(p.lag.P99).text, span(p.lag.Longest).text)
}
