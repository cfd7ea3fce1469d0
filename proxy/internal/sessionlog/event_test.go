package sessionlog_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/sessionlog"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/relay"
)

const second = int64(time.Second)

func whole() record.Record {
	at := time.Date(2026, 11, 25, 8, 0, 0, 0, time.UTC).UnixNano()
	r := record.Record{
		ID: record.NewIDs().Of(1), TLS: true, Loop: 3, Listener: "web", Upstream: "shop", Endpoint: "e1",
		Rest: record.Rest{
			Client: source.TCP(netip.MustParseAddrPort("192.0.2.1:5555")), Source: netip.MustParseAddrPort("[2001:db8::1]:77"),
			Destination: netip.MustParseAddrPort("[fe80::2%eth0]:443"), Local: netip.MustParseAddrPort("127.0.0.1:443"),
			EndpointAddress: netip.MustParseAddrPort("10.0.0.1:80"), ServerName: "a.example", User: "ann", Database: "shop", Protocol: "http1", Host: "a.example", Path: "/a", Protocols: "h2,http/1.1", Tags: "team=a", Before: 7,
		},
		Accepted: at, Begun: at + 1e6, Header: at + 2e6, Preread: at + 3e6, Routed: at + 3e6, Queued: 4e6, Paused: 5e6, Waits: 1,
		Picked: at + 10e6, Connecting: at + 11e6, Joined: at + 13e6, ClientFirst: at + 14e6, EndpointFirst: at + 15e6, HalfClosed: at + second, Ended: at + 2*second,
		Retries: 2, Redispatched: true, NumFailures: 2, Err: errors.New("read: connection reset by peer"), Why: "no_route", Verdict: "endpoint",
		Counts:    record.Counts{Process: 9, Listener: 8, Upstream: 7, Endpoint: 6},
		ClientLeg: record.Leg{Known: true, RTT: 1e6, MinRTT: 2e5, Retransmitted: 3}, EndpointLeg: record.Leg{Known: true, RTT: 3e6, MinRTT: 4e5},
	}
	r.Failures[1] = record.Failure{Endpoint: "e0", Cause: record.CauseTimeout}
	r.Result = relay.Result{
		AToB: relay.Flow{Spliced: 1 << 40, Copied: 10, Lost: 1}, BToA: relay.Flow{Spliced: 5, Copied: 6, Lost: 2},
		Reason: relay.ReasonReset, Culprit: relay.SideB, First: relay.SideA,
	}
	return r
}

func eventOf(k sessionlog.Kind, r *record.Record) sessionlog.Event {
	return sessionlog.EventOf(k, r.Ended, r)
}

// TestUnverified: the line of a session that failed for a certificate has the cause, which would be cut off
// behind words that are other fields.
func TestUnverified(t *testing.T) {
	t.Parallel()
	r := whole()
	r.Err = fmt.Errorf("upstream shop: no endpoint could be connected to: TLS handshake with 10.0.0.1:443: %w",
		&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired, Detail: "current time is after"}})
	e := eventOf(sessionlog.End, &r)
	if got, want := e.Error(), "x509: certificate has expired or is not yet valid: current time is after"; got != want {
		t.Errorf("the error is %q, want %q", got, want)
	}
}

// TestQueueTimeout: the state of a client that waited for room in vain is sQ, although a connect had failed before.
func TestQueueTimeout(t *testing.T) {
	t.Parallel()
	r := record.Record{Outcome: record.Refused, Why: "upstream", Waits: 1, Err: fmt.Errorf("upstream one: %w", record.ErrQueueTimeout)}
	r.Fail("e1", 1, 2, syscall.ECONNREFUSED)
	e := eventOf(sessionlog.End, &r)
	if e.State() != "sQ" || e.Error() != r.Err.Error() {
		t.Errorf("%s, %q", e.State(), e.Error())
	}
	r.Err = errors.New("upstream one: no endpoint could be connected to")
	if e := eventOf(sessionlog.End, &r); e.State() != "SC" {
		t.Errorf("%s without a place in the end", e.State())
	}
}

// TestResetError: the error of a session that was reset says by whom, whichever operation has found it.
func TestResetError(t *testing.T) {
	t.Parallel()
	for side, want := range map[relay.Side]string{
		relay.SideA: "the client has reset the connection", relay.SideB: "the endpoint has reset the connection", relay.SideNone: "read tcp: read: broken pipe",
	} {
		r := whole()
		r.Result.Culprit, r.Err = side, fmt.Errorf("penstock: relay: read tcp: read: %w", syscall.EPIPE)
		if e := eventOf(sessionlog.End, &r); e.Error() != want {
			t.Errorf("%v: the error is %q, want %q", side, e.Error(), want)
		}
		r.Err = errors.New("penstock: relay: read: the TLS stream ended without close_notify")
		if e := eventOf(sessionlog.End, &r); e.Error() != "read: the TLS stream ended without close_notify" {
			t.Errorf("%v: the error is %q", side, e.Error())
		}
	}
}

// TestBound: names of the configuration and errors have a bounded size in a line, and a mark if they are cut.
func TestBound(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 5000)
	r := whole()
	r.Listener, r.Upstream, r.Endpoint, r.EndpointPath, r.EndpointAddress, r.Err = long, long, long, long, netip.AddrPort{}, errors.New(long)
	r.Result.Culprit = relay.SideNone
	e := eventOf(sessionlog.End, &r)
	for name, most := range map[string]int{"listener": 64, "upstream": 64, "endpoint": 64, "endpoint_address": 80 + len("unix:"), "error": 96} {
		got, err := sessionlog.Format(sessionlog.FormatTemplate, "{"+name+"}", &e)
		if cut, marked := strings.CutSuffix(got, `\xe2\x80\xa6`); !marked || len(cut)+len(record.Cut) != most || err != nil {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
}

// hostile are names as a client may choose them.
var hostile = []string{
	"a\nb", "a\r\nInjected: 1", "\x1b[31mred", "\x9b31m", "quote\"'\\", "\u202eright-to-left", "\xff\xfe", `\xff\xfe`, "\x00", "{\"a\":1}", "a b\tc", "\u2028", "\U0001f600",
}

// TestInjection: no name makes another line, a terminal code, or another field.
func TestInjection(t *testing.T) {
	for _, name := range hostile {
		r := whole()
		r.ServerName, r.Protocols, r.Endpoint, r.EndpointPath, r.Err = name, name, name, "/run/"+name, errors.New(name)
		r.Result.Culprit = relay.SideNone
		e := eventOf(sessionlog.End, &r)
		for format, template := range map[string]string{
			sessionlog.FormatJSON: "", sessionlog.FormatHAProxy: "", sessionlog.FormatTemplate: "{sni}|{alpn}|{endpoint}|{error}",
		} {
			line, err := sessionlog.Format(format, template, &e)
			must(t, err)
			if i := strings.IndexFunc(line, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsPrint(r) }); i >= 0 {
				t.Errorf("%s of %q has %q", format, name, line[i:])
			}
			if format == sessionlog.FormatTemplate && (strings.Count(line, "|") != 3 || strings.ContainsAny(line, " \"'")) {
				t.Errorf("the template of %q is %s", name, line)
			}
			if format == sessionlog.FormatJSON {
				sameName(t, line, name)
			}
		}
	}
}

// sameName checks that a line of JSON has the name as it was, except for backslashes and bytes that are not UTF-8.
func sameName(t *testing.T, line, name string) {
	t.Helper()
	var got struct{ SNI string }
	if err := json.Unmarshal([]byte(line), &got); err != nil {
		t.Errorf("%v: %s", err, line)
	}
	want := strings.NewReplacer(`\`, `\x5c`, "\xff", `\xff`, "\xfe", `\xfe`, "\x9b", `\x9b`).Replace(name)
	if got.SNI != want {
		t.Errorf("sni %q, want %q", got.SNI, want)
	}
}

// TestJSON: every field of a whole record is in its line, once, by its name.
func TestJSON(t *testing.T) {
	r := whole()
	e := eventOf(sessionlog.End, &r)
	line, _ := sessionlog.Format(sessionlog.FormatJSON, "", &e)
	var got map[string]any
	must(t, json.Unmarshal([]byte(line), &got))
	for _, name := range sessionlog.Fields() {
		if (got[name] == nil) != (name == "adopted") {
			t.Errorf("%s is %v", name, got[name])
		}
	}
	for name, want := range map[string]any{
		"time": "2026-11-25T08:00:02.000000Z", "event": "end", "id": r.ID.String(), "client": "192.0.2.1:5555", "reason": "reset", "culprit": "endpoint", "state": "SD",
		"engine": "both", "bytes_to_client": 11.0, "duration_us": 2e6, "connect_us": 2000.0, "client_first_us": 1000.0, "half_close_us": 987000.0, "attempt_cause": "timeout", "tls": true,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	r.Result.First = relay.SideB // the endpoint's answer was complete before its reset
	if e = eventOf(sessionlog.End, &r); e.State() != "--" {
		t.Errorf("a reset after the endpoint's end of file is %s", e.State())
	}
}

// TestLookUp: a look-up takes its time until the connect, or until it has failed.
func TestLookUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ended, connecting int64 // after the pick
		want              string
	}{{7e6, 0, "7000"}, {-2e6, 3e6, "3000"}, {-2e6, 0, "-"}} {
		r := whole()
		r.NumFailures, r.Failures[0] = 1, record.Failure{Cause: record.CauseResolve, Ended: r.Picked + c.ended}
		if r.Connecting, r.Joined = 0, 0; c.connecting != 0 {
			r.Connecting = r.Picked + c.connecting
		}
		e := eventOf(sessionlog.End, &r)
		if got, _ := sessionlog.Format(sessionlog.FormatTemplate, "{lookup_us}", &e); strings.TrimSpace(got) != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestRoundTrips: of round trips those are in a line that were measured, and no 0 in place of others.
func TestRoundTrips(t *testing.T) {
	for _, c := range []struct {
		client, endpoint record.Leg
		want             string
	}{
		{record.Leg{Known: true, MinRTT: 30e3}, record.Leg{Known: true}, "- 30 - -"},
		{record.Leg{Known: true, RTT: 7e3}, record.Leg{Known: true, RTT: 9e3, MinRTT: 8e3}, "7 - 9 8"},
		{record.Leg{Known: true}, record.Leg{Known: true}, "- - - -"},
		{record.Leg{RTT: 1e3, MinRTT: 1e3}, record.Leg{}, "- - - -"},
	} {
		r := whole()
		r.ClientLeg, r.EndpointLeg = c.client, c.endpoint
		e := eventOf(sessionlog.End, &r)
		if got, err := sessionlog.Format(sessionlog.FormatTemplate, "{client_rtt_us} {client_min_rtt_us} {endpoint_rtt_us} {endpoint_min_rtt_us}", &e); got != c.want || err != nil {
			t.Errorf("%q, want %q, %v", got, c.want, err)
		}
		line, _ := sessionlog.Format(sessionlog.FormatJSON, "", &e)
		if n, want := strings.Count(line, "rtt_us"), 4-strings.Count(c.want, "-"); n != want {
			t.Errorf("%d of them, want %d: %s", n, want, line)
		}
	}
}

// TestAdopted: the line of an adopted session has neither a count nor a time of the process before, whatever the record has.
func TestAdopted(t *testing.T) {
	r := record.Record{
		Adopted: true, Loop: 1, Upstream: "shop", Rest: record.Rest{Client: source.TCP(netip.MustParseAddrPort("192.0.2.1:5555"))}, Accepted: second, Ended: 3 * second,
		Counts: record.Counts{Process: 9, Upstream: 7}, Result: relay.Result{Reason: relay.ReasonIdle, BToA: relay.Flow{Carried: 5}},
	}
	e := sessionlog.EventOf(sessionlog.End, 4*second, &r)
	line, err := sessionlog.Format(sessionlog.FormatJSON, "", &e)
	const want = `{"time":"1970-01-01T00:00:04.000000Z","event":"end","id":"00000000000000000000000000000000","upstream":"shop","client":"192.0.2.1:5555","tls":false,"outcome":"joined","reason":"idle-timeout","state":"cD",` +
		`"engine":"lane","adopted":true,"bytes_to_endpoint":0,"bytes_to_client":5,"spliced_to_endpoint":0,"spliced_to_client":0,"lane_to_endpoint":0,"lane_to_client":5,"lost":0,"duration_us":3000000,"active":9,"active_upstream":7,"loop":1}`
	if line != want || err != nil {
		t.Errorf("%s, %v", line, err)
	}
	if line, _ := sessionlog.Format(sessionlog.FormatHAProxy, "", &e); !strings.Contains(line, " - shop/<NOSRV> -1/-1/3000 5 cD 9/0/6/0/0 0/0") {
		t.Error(line)
	}
	r.Begun = r.Accepted + 7_000 // its course is known
	e = sessionlog.EventOf(sessionlog.End, 4*second, &r)
	if line, _ := sessionlog.Format(sessionlog.FormatJSON, "", &e); !strings.Contains(line, `"accept_wait_us":7,`) || !strings.Contains(line, `"retries":0,`) {
		t.Error(line)
	}
}

// TestTemplates: fields and braces stand for what they should, and errors are named.
func TestTemplates(t *testing.T) {
	r := whole()
	r.User = "-"
	e := eventOf(sessionlog.End, &r)
	for template, want := range map[string]string{
		"{client} -> {upstream}/{endpoint}": "192.0.2.1:5555 -> shop/e1", "{{x} {retries}": "{x} 2", "plain": "plain", "{user} {state}": `\x2d SD`,
	} {
		if got, err := sessionlog.Format(sessionlog.FormatTemplate, template, &e); got != want || err != nil {
			t.Errorf("%q gives %q, %v", template, got, err)
		}
	}
	none := eventOf(sessionlog.End, &record.Record{})
	if got, _ := sessionlog.Format(sessionlog.FormatTemplate, "{sni}/{error}", &none); got != "-/-" {
		t.Errorf("without values: %q", got)
	}
	for _, template := range []string{"", "{clint}", "{client", strings.Repeat("x", sessionlog.MaxTemplate+1)} {
		if err := sessionlog.CheckTemplate(template); err == nil {
			t.Errorf("%.20q has no error", template)
		}
	}
}

// TestAddAllocates: an event takes no memory of the collector's.
func TestAddAllocates(t *testing.T) {
	r, e := whole(), new(sessionlog.Event)
	if n := testing.AllocsPerRun(100, func() { e.Set(sessionlog.End, r.Ended, &r) }); n > 0 {
		t.Errorf("an event takes %v allocations", n)
	}
}
