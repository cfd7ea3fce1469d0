package discovery_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// A nameServer answers on loopback, by UDP and TCP at the same port.
type nameServer struct {
	addr string

	mu      sync.Mutex
	records map[string][]dns.RR // by "TYPE name."
	extra   []dns.RR            // of every SRV answer
	rcode   map[string]int      // by "TYPE name.", or "" for all others
	silent  bool
	plain   bool   // knows no EDNS0
	lies    bool   // answers another question
	counts  uint16 // of answers, in the header of a reply that has none; 0: replies are whole
	cut     bool   // every reply has the truncated bit, by TCP too, and no answers
	limit   int    // of a UDP reply; 0: the client's limit
	noSOA   bool
	asked   map[string]int // by "net TYPE name."
	now     int            // questions in hand
	most    int
	slow    time.Duration
}

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
		if err != nil {
			t.Fatal(err)
		}
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
	reply.Rcode = code
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
