package discovery_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/discovery"
)

func TestMain(m *testing.M) { leak.Main(m) }

// A rig watches a source and records its updates.
type rig struct {
	t       *testing.T
	clock   *manual
	source  discovery.Source
	updates chan []discovery.Endpoint
	log     *software.Output
	pending time.Duration // time that the source waits
}

// logged returns how often the log has a text.
func (r *rig) logged(text string) int { return strings.Count(r.log.String(), text) }

// lookups watches the name in cfg. The test moves its clock.
func lookups(t *testing.T, cfg discovery.DNSConfig) *rig {
	t.Helper()
	r := &rig{t: t, clock: newManual(), log: new(software.Output)}
	cfg.Clock, cfg.Log = r.clock, slog.New(slog.NewTextHandler(r.log, nil))
	if cfg.Random == nil {
		cfg.Random = func() float64 { return 0 }
	}
	source, err := discovery.NewDNS(cfg)
	must(t, err)
	return r.watch(source)
}

// addresses watches db.example for IPv4 addresses, with the settings that change makes, unless that is nil.
func addresses(t *testing.T, s *nameServer, change func(*discovery.DNSConfig)) *rig {
	t.Helper()
	cfg := of(s)
	cfg.Type = "A"
	if change != nil {
		change(&cfg)
	}
	return lookups(t, cfg)
}

// fails expects that the last lookup has failed, for a reason that has these texts.
func (r *rig) fails(texts ...string) {
	r.t.Helper()
	err := r.source.Status().Err
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			r.t.Errorf("error %v, want %s", err, text)
		}
	}
}

// succeeds expects that the last lookup has succeeded.
func (r *rig) succeeds() {
	r.t.Helper()
	if s := r.source.Status(); s.Err != nil || s.Failures > 0 || s.Stale || !s.Confirmed.Equal(r.clock.Now()) {
		r.t.Errorf("status %+v", s)
	}
}

func (r *rig) watch(source discovery.Source) *rig {
	r.source, r.updates = source, make(chan []discovery.Endpoint, 1000)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		source.Watch(ctx, func(e []discovery.Endpoint) { r.updates <- e })
	}()
	r.t.Cleanup(func() { cancel(); <-ended })
	return r
}

// told returns the one update since the last call. It fails the test if there are none or
// several. It must be called while the source waits.
func (r *rig) told() string {
	r.t.Helper()
	if len(r.updates) != 1 {
		r.t.Fatalf("%d updates, want one; status %+v", len(r.updates), r.source.Status())
	}
	return text(<-r.updates)
}

// next returns the next update, whenever it arrives.
func (r *rig) next() string {
	r.t.Helper()
	select {
	case e := <-r.updates:
		return text(e)
	case <-time.After(condition.Patience):
		r.t.Fatalf("no update; status %+v", r.source.Status())
		return ""
	}
}

// text writes endpoints as "address*weight", with "b" for backup, and refused ones as "; " and the reason.
func text(endpoints []discovery.Endpoint) string {
	var words []string
	refused := ""
	for _, e := range endpoints {
		if e.Refused != "" {
			refused += "; " + e.Refused
			continue
		}
		word := fmt.Sprintf("%s*%d", e.Address, e.Weight)
		if e.Backup {
			word += "b"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ") + refused
}

// parse reads what text writes.
func parse(name string, data []byte) (found []discovery.Endpoint, err error) {
	for _, word := range strings.Fields(string(data)) {
		address, weight, _ := strings.Cut(word, "*")
		n, err := strconv.Atoi(strings.TrimSuffix(weight, "b"))
		if err != nil {
			return nil, fmt.Errorf("%s:1:1: %q is no endpoint", name, word)
		}
		found = append(found, discovery.Endpoint{Address: address, Weight: n, Backup: strings.HasSuffix(weight, "b")})
	}
	return found, nil
}

func (r *rig) silence() {
	r.t.Helper()
	if len(r.updates) != 0 {
		r.t.Fatalf("received the update %q, want none", text(<-r.updates))
	}
}

// again lets the source's pause pass, if it is in one, waits until it pauses again, and
// returns how long.
func (r *rig) again() time.Duration {
	r.t.Helper()
	r.clock.pass(r.pending)
	r.pending = r.clock.pause(r.t)
	return r.pending
}

// pause is again, and checks how long the pause was.
func (r *rig) pause(want time.Duration) {
	r.t.Helper()
	if d := r.again(); d != want {
		r.t.Errorf("the source waits for %v, want %v", d, want)
	}
}

func equal[T comparable](t *testing.T, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// manual is a clock that stands still until it is moved.
type manual struct {
	mu    sync.Mutex
	now   time.Time
	waits []*wait
	asked chan time.Duration // the durations of the calls of After
}

type wait struct {
	until time.Time
	tick  chan time.Time
}

func newManual() *manual {
	return &manual{now: time.Unix(1_000_000, 0), asked: make(chan time.Duration, 1000)}
}

func (c *manual) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *manual) After(d time.Duration) (<-chan time.Time, func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &wait{c.now.Add(d), make(chan time.Time, 1)}
	c.waits = append(c.waits, w)
	c.fire()
	c.asked <- d
	return w.tick, func() bool { return c.drop(w) }
}

func (c *manual) drop(w *wait) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.waits)
	c.waits = slices.DeleteFunc(c.waits, func(o *wait) bool { return o == w })
	return len(c.waits) < before
}

// fire wakes the waits that are over; c.mu is held.
func (c *manual) fire() {
	c.waits = slices.DeleteFunc(c.waits, func(w *wait) bool {
		if w.until.After(c.now) {
			return false
		}
		w.tick <- c.now
		return true
	})
}

// pass lets d pass.
func (c *manual) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.fire()
}

// pause waits until a goroutine waits for the clock, and returns how long.
func (c *manual) pause(t *testing.T) time.Duration {
	t.Helper()
	select {
	case d := <-c.asked:
		return d
	case <-time.After(condition.Patience):
		t.Fatal("no goroutine waits for the clock")
		return 0
	}
}

// A nameServer answers on loopback, by UDP and TCP at the same port.
type nameServer struct {
	addr string

	mu      sync.Mutex
	records map[string][]dns.RR // by "TYPE name."
	extra   []dns.RR            // in every SRV reply
	rcode   map[string]int      // by "TYPE name.", or "" for all others; none: there is no reply
	silent  bool
	plain   bool   // knows no EDNS0
	lies    bool   // answers another question
	counts  uint16 // the number of answers that the header of a reply without answers counts; 0: replies are complete
	cut     bool   // every reply has the truncated bit, by TCP too, and no answers
	limit   int    // the largest size of a UDP reply; 0: the client's limit
	noSOA   bool
	refers  bool           // to servers that know the answer
	asked   map[string]int // by "net TYPE name."
	now     int            // questions that are being answered
	most    int
	slow    time.Duration
}

// none is no rcode.
const none = -1

func newServer(t *testing.T) *nameServer {
	t.Helper()
	s := &nameServer{records: map[string][]dns.RR{}, rcode: map[string]int{}, asked: map[string]int{}}
	packets, stream := listenBoth(t)
	s.addr = packets.LocalAddr().String()
	for _, server := range []*dns.Server{{PacketConn: packets}, {Listener: stream}} {
		server.Handler = dns.HandlerFunc(s.serve)
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		ended := make(chan error, 1)
		go func() { ended <- server.ActivateAndServe() }()
		<-started
		t.Cleanup(func() {
			if err := server.Shutdown(); err != nil {
				t.Error(err)
			}
			<-ended
		})
	}
	return s
}

// listenBoth gets the same port for UDP and TCP.
func listenBoth(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 100 {
		packets, err := net.ListenPacket("udp", "127.0.0.1:0")
		must(t, err)
		stream, err := net.Listen("tcp", packets.LocalAddr().String())
		if err == nil {
			return packets, stream
		}
		packets.Close()
	}
	t.Fatal("no port is free for both UDP and TCP")
	return nil, nil
}

func (s *nameServer) serve(w dns.ResponseWriter, m *dns.Msg) {
	q := m.Question[0]
	key := dns.TypeToString[q.Qtype] + " " + strings.ToLower(q.Name)
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.asked[w.LocalAddr().Network()+" "+key]++
	reply, pause, counts := s.reply(m, key, w.LocalAddr().Network()), s.slow, s.counts
	s.mu.Unlock()
	time.Sleep(pause)
	s.mu.Lock()
	s.now--
	s.mu.Unlock()
	switch {
	case reply == nil:
	case counts > 0:
		reply.Answer, reply.Ns, reply.Extra = nil, nil, nil
		b, _ := reply.Pack()
		binary.BigEndian.PutUint16(b[6:], counts)
		_, _ = w.Write(b)
	default:
		_ = w.WriteMsg(reply)
	}
}

func (s *nameServer) reply(m *dns.Msg, key, network string) *dns.Msg {
	if s.silent {
		return nil
	}
	reply := new(dns.Msg).SetReply(m)
	reply.RecursionAvailable = true
	edns := m.IsEdns0()
	if s.plain && edns != nil {
		return reply.SetRcode(m, dns.RcodeFormatError)
	}
	code, ok := s.rcode[key]
	if !ok {
		code = s.rcode[""]
	}
	if reply.Rcode = code; code == none {
		return nil
	}
	if code != dns.RcodeSuccess && code != dns.RcodeNameError {
		return reply
	}
	if reply.Answer = s.records[key]; code == dns.RcodeSuccess && reply.Answer != nil {
		if m.Question[0].Qtype == dns.TypeSRV {
			reply.Extra = append(reply.Extra, s.extra...)
		}
	} else if !s.noSOA {
		reply.Ns = []dns.RR{record("example. 600 IN SOA ns.example. root.example. 1 2 3 4 20")}
	}
	if s.refers {
		reply.RecursionAvailable, reply.Ns = false, []dns.RR{record("example. 600 IN NS ns.example.")}
	}
	if s.lies {
		reply.Question = []dns.Question{{Name: "other.example.", Qtype: dns.TypeA, Qclass: dns.ClassINET}}
	}
	if s.cut {
		reply.Truncated, reply.Answer, reply.Ns = true, nil, nil
		return reply
	}
	if network == "udp" {
		size := dns.MinMsgSize
		if edns != nil {
			size = int(edns.UDPSize())
		}
		if s.limit > 0 {
			size = s.limit
		}
		reply.Truncate(size)
	}
	return reply
}

func record(text string) dns.RR {
	rr, err := dns.NewRR(text)
	if err != nil {
		panic(err)
	}
	return rr
}

// set replaces the records of a question: each is "TTL TYPE DATA", or with the
// owner's name before it.
func (s *nameServer) set(key string, records ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[key] = nil
	_, name, _ := strings.Cut(key, " ")
	for _, r := range records {
		if r[0] >= '0' && r[0] <= '9' {
			r = name + " " + r
		}
		s.records[key] = append(s.records[key], record(r))
	}
}

// be changes the behavior of the server.
func (s *nameServer) be(change func(*nameServer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// count returns how often a question was asked, and resets the count.
func (s *nameServer) count(network, key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.asked[network+" "+key]
	delete(s.asked, network+" "+key)
	return n
}

func addressRecords(n, ttl int) (records []string) {
	for i := range n {
		records = append(records, fmt.Sprintf("%d A 10.0.%d.%d", ttl, i/200, i%200+1))
	}
	return records
}
