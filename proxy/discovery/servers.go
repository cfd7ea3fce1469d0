package discovery

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/sockopt"
)

// servers queries name servers in turn. It is safe for concurrent use.
type servers struct {
	path    string // of resolv.conf; empty if the list is given
	timeout time.Duration
	limiter *QueryLimiter

	mu    sync.Mutex
	list  []string
	first int // the server that answered last
}

func (s *servers) fill(cfg *DNSConfig) error {
	s.timeout, s.limiter = cfg.Timeout, cfg.Limiter
	if len(cfg.Servers) == 0 {
		s.path = "/etc/resolv.conf"
	}
	for _, spec := range cfg.Servers {
		server, err := serverAddress(spec)
		if err != nil {
			return err
		}
		s.list = append(s.list, server)
	}
	return nil
}

// serverAddress adds port 53 to an address without one.
func serverAddress(spec string) (string, error) {
	if ip, err := netip.ParseAddr(spec); err == nil {
		return net.JoinHostPort(ip.String(), "53"), nil
	}
	if ap, err := netip.ParseAddrPort(spec); err == nil && ap.Port() != 0 {
		return ap.String(), nil
	}
	return "", fmt.Errorf("server %q: write an IP address, such as 10.0.0.53, or with a port: 10.0.0.53:5353, [fd00::53]:5353", spec)
}

// order returns the servers. The server that answered last comes first.
func (s *servers) order() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.path != "" {
		s.reload()
	}
	return slices.Concat(s.list[s.first:], s.list[:s.first])
}

// maxResolvConf is the largest size of a resolv.conf.
const maxResolvConf = 1 << 20

// reload reads resolv.conf. Without such a file, or name servers in it, the name server of the local machine is asked
// (resolv.conf(5)). While the file cannot be read, the servers stay.
func (s *servers) reload() {
	text, err := file.Read(s.path, maxResolvConf)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && s.list != nil {
		return
	}
	var list []string
	if conf, err := dns.ClientConfigFromReader(bytes.NewReader(text)); err == nil {
		for _, server := range conf.Servers {
			list = append(list, net.JoinHostPort(server, conf.Port))
		}
	}
	if len(list) == 0 {
		list = []string{net.JoinHostPort("127.0.0.1", "53")}
	}
	if !slices.Equal(list, s.list) {
		s.list, s.first = list, 0
	}
}

func (s *servers) answered(server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.list, server); i >= 0 {
		s.first = i
	}
}

// ask returns an answer to q, positive or negative: its Rcode is NOERROR or NXDOMAIN. It tries every server, and then
// once more each server that did not reply, because a datagram may have been lost. But if another question has been
// answered by then, ask gives up, so that this answer need not wait: the next lookup asks q again.
func (s *servers) ask(ctx context.Context, q question, answered *atomic.Bool) (*dns.Msg, error) {
	if err := s.limiter.enter(ctx); err != nil {
		return nil, err
	}
	defer s.limiter.leave()
	var errs failures
	left := s.order()
	for range 2 {
		reply, silent, failed := s.askEach(ctx, left, q)
		switch errs = append(errs, failed...); {
		case reply != nil:
			answered.Store(true)
			return reply, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
		if left = silent; answered.Load() {
			break
		}
	}
	return nil, &questionError{q, errs.join()}
}

// patience is how long a server is asked alone.
const patience = time.Second

// askEach returns the first reply of some servers. Each server is asked once the one before it has failed, or has not answered
// for a while. silent are the servers that did not reply in their time.
func (s *servers) askEach(ctx context.Context, list []string, q question) (reply *dns.Msg, silent []string, errs failures) {
	type result struct {
		server string
		reply  *dns.Msg
		err    error
	}
	ctx, over := context.WithCancel(ctx)
	defer over()
	results := make(chan result, len(list))
	var late <-chan time.Time
	next := true
	for asked, ended := 0, 0; ended < len(list) && ctx.Err() == nil; {
		if next && asked < len(list) {
			server := list[asked]
			go func() {
				reply, err := s.askOne(ctx, server, q)
				results <- result{server, reply, err}
			}()
			asked, late = asked+1, time.After(patience)
		}
		select {
		case <-late:
			next = true
		case is := <-results:
			if is.err == nil {
				s.answered(is.server)
				return is.reply, nil, nil
			}
			if timedOut(is.err) {
				silent = append(silent, is.server)
			}
			errs = append(errs, is.err)
			ended, next = ended+1, is.server == list[asked-1]
		}
	}
	return nil, silent, errs
}

func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// A timeoutError reports a missing reply.
type timeoutError struct {
	server string
	cause  error
}

func (e *timeoutError) Error() string { return e.server + " does not answer" }
func (e *timeoutError) Unwrap() error { return e.cause }

// askOne asks by UDP with EDNS0. If the server does not support EDNS0, it asks without. If the
// answer was truncated, it asks by TCP.
func (s *servers) askOne(ctx context.Context, server string, q question) (*dns.Msg, error) {
	m := new(dns.Msg).SetQuestion(q.name, q.qtype)
	m.SetEdns0(datagram, false)
	reply, err := s.exchange(ctx, "udp", server, m)
	if err == nil && (reply.Rcode == dns.RcodeFormatError || reply.Rcode == dns.RcodeNotImplemented) {
		m = new(dns.Msg).SetQuestion(q.name, q.qtype)
		reply, err = s.exchange(ctx, "udp", server, m)
	}
	if err == nil && reply.Truncated {
		reply, err = s.exchange(ctx, "tcp", server, m)
	}
	switch {
	case timedOut(err):
		return nil, &timeoutError{server, err}
	case err != nil:
		return nil, fmt.Errorf("%s: %w", server, err)
	case reply.Rcode != dns.RcodeSuccess && reply.Rcode != dns.RcodeNameError:
		return nil, fmt.Errorf("%s says %s", server, cmp.Or(dns.RcodeToString[reply.Rcode], "rcode "+strconv.Itoa(reply.Rcode)))
	case len(reply.Answer) == 0 && reply.Rcode == dns.RcodeSuccess && refers(reply.Ns):
		return nil, fmt.Errorf("%s refers to other servers, which are not asked", server)
	default:
		return reply, nil
	}
}

// refers reports whether the authority section of a reply without an answer only says which servers to ask. If it denied
// the records, it would have an SOA record, or nothing (RFC 2308, section 2.2).
func refers(authority []dns.RR) bool {
	is := func(rrtype uint16) func(dns.RR) bool {
		return func(rr dns.RR) bool { return rr.Header().Rrtype == rrtype }
	}
	return slices.ContainsFunc(authority, is(dns.TypeNS)) && !slices.ContainsFunc(authority, is(dns.TypeSOA))
}

// datagram is a size of UDP answers that hardly any network fragments (DNS Flag Day 2020).
const datagram = 1232

// Replies that are no answers.
var (
	errQuestion = errors.New("the reply answers another question")
	errCut      = errors.New("the reply lacks records that its header counts")
	errTC       = errors.New("the reply is truncated, although it came over TCP")
)

// exchange sends a query, and returns the reply to it.
func (s *servers) exchange(ctx context.Context, network, server string, m *dns.Msg) (*dns.Msg, error) {
	through, err := sockopt.Dial(ctx, &net.Dialer{Timeout: s.timeout}, network, server)
	if err != nil {
		return nil, err
	}
	conn := &dns.Conn{Conn: through}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })() // reads and writes obey only deadlines
	if err := conn.SetDeadline(time.Now().Add(s.timeout)); err != nil {
		return nil, err
	}
	conn.UDPSize = datagram
	if err := conn.WriteMsg(m); err != nil {
		return nil, err
	}
	reply, err := receive(conn, network == "udp", m.Id)
	switch {
	case err != nil:
		return nil, err
	case !reply.Response || len(reply.Question) != 1 || dns.CanonicalName(reply.Question[0].Name) != m.Question[0].Name ||
		reply.Question[0].Qtype != m.Question[0].Qtype:
		return nil, errQuestion
	case reply.Truncated && network == "tcp":
		return nil, errTC
	}
	return reply, nil
}

// receive reads the reply with a given identifier. It skips late datagrams that answer earlier queries. The
// library also accepts a message that ends before all its records have come. Only a datagram with the truncated
// bit may lack records, so receive returns an error for any other.
func receive(conn *dns.Conn, datagrams bool, id uint16) (*dns.Msg, error) {
	for {
		var header dns.Header
		packet, err := conn.ReadMsgHeader(&header)
		if err != nil {
			return nil, err
		}
		if header.Id != id {
			if datagrams {
				continue
			}
			return nil, dns.ErrId
		}
		reply := new(dns.Msg)
		if err := reply.Unpack(packet); err != nil {
			return nil, err
		}
		if len(reply.Answer) != int(header.Ancount) && !(reply.Truncated && datagrams) {
			return nil, errCut
		}
		return reply, nil
	}
}
