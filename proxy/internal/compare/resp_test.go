package compare

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// command returns a command on the wire, inline or not.
func command(inline bool, args ...string) []byte {
	if inline {
		return []byte(strings.Join(args, " ") + "\r\n")
	}
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

// respValue draws a value of RESP3, of so many levels at most.
func respValue(t *rapid.T, depth int) []byte {
	kinds := "+-:_#,($!="
	if depth > 0 {
		kinds += "*~%|"
	}
	kind := rapid.SampledFrom([]byte(kinds)).Draw(t, "kind")
	text := rapid.SliceOfN(rapid.Byte(), 0, 60)
	switch kind {
	case '+', '-', ':', '#', ',', '(':
		return fmt.Appendf(nil, "%c%s\r\n", kind, rapid.StringMatching("[ -~]{0,50}").Draw(t, "line"))
	case '_':
		return []byte("_\r\n")
	case '$', '!', '=':
		if rapid.IntRange(0, 5).Draw(t, "null") == 0 {
			return fmt.Appendf(nil, "%c-1\r\n", kind)
		}
		s := text.Draw(t, "string")
		return fmt.Appendf(nil, "%c%d\r\n%s\r\n", kind, len(s), s)
	}
	n := rapid.IntRange(0, 4).Draw(t, "n")
	b := fmt.Appendf(nil, "%c%d\r\n", kind, n)
	if kind == '%' || kind == '|' {
		n *= 2
	}
	for range n {
		b = append(b, respValue(t, depth-1)...)
	}
	if kind == '|' {
		b = append(b, respValue(t, depth-1)...)
	}
	return b
}

// count returns the figures of a name.
func count(s Snapshot, name string) Figures {
	for _, n := range s.Names {
		if n.Name == name {
			n.Lag = Lag{}
			return n.Figures
		}
	}
	return Figures{}
}

// TestResp: answers have the names of their commands, in whatever pieces they come, and a byte that
// is flipped is one difference of the right name.
func TestResp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := []string{"get", "SET", "Lrange", "hgetall", "EVALSHA", "client"}
		var w wire
		want := make(map[string]uint64)
		n := rapid.IntRange(1, 20).Draw(t, "commands")
		flip := rapid.IntRange(0, n-1).Draw(t, "flip")
		var flipped string
		for i := range n {
			name := rapid.SampledFrom(words).Draw(t, "name")
			w.request = append(w.request, command(rapid.Bool().Draw(t, "inline"), name, "key", "a value")...)
			want[strings.ToUpper(name)]++
			answer := respValue(t, 4)
			w.primary = append(w.primary, answer...)
			if i == flip {
				flipped = strings.ToUpper(name)
				answer = append([]byte("*2\r\n"), slices.Concat(answer, []byte("+more\r\n"))...)
			}
			w.shadow = append(w.shadow, answer...)
		}
		same := play(t, Config{Framing: Resp}, wire{w.request, w.primary, w.primary}, drawn(t), true)
		if same.Equal != uint64(n) || same.Different != 0 {
			t.Fatalf("equal sides: %+v", same)
		}
		got := play(t, Config{Framing: Resp}, w, drawn(t), true)
		for name, n := range want {
			figures := Figures{Equal: n}
			if name == flipped {
				figures = Figures{Equal: n - 1, Different: 1}
			}
			if count(got, name) != figures {
				t.Fatalf("%s: %+v, want %+v", name, count(got, name), figures)
			}
		}
	})
}

// TestRespPushes: what a server sends by itself may come anywhere, and moves no answer.
func TestRespPushes(t *testing.T) {
	request := slices.Concat(command(false, "HELLO", "3"), command(false, "SUBSCRIBE", "a", "b"), command(false, "GET", "x"), command(false, "PING"))
	hello, acks := "%1\r\n+proto\r\n:3\r\n", ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n"
	message, value, pong := ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhi\r\n", "$1\r\n7\r\n", "+PONG\r\n"
	for _, two := range []bool{false, true} {
		fit := func(s string) []byte {
			if two {
				s = strings.ReplaceAll(s, ">3", "*3")
			}
			return []byte(s)
		}
		w := wire{request, fit(hello + acks + message + value + pong), fit(hello + acks + value + pong + message)}
		for _, next := range []chunker{whole, single} {
			got := play(t, Config{Framing: Resp}, w, next, true)
			if got.Different != 0 || count(got, "GET").Equal != 1 || count(got, "PING").Equal != 1 || count(got, "push").Equal != 3 || count(got, "SUBSCRIBE").Equal != 0 {
				t.Errorf("RESP2 %v: %+v", two, got.Names)
			}
		}
	}
}

func TestRespCommands(t *testing.T) {
	for _, c := range []struct {
		name    string
		request []byte
		answers string
		want    map[string]uint64 // equal answers by name
		stopped Stop
	}{
		{"transaction", slices.Concat(command(false, "MULTI"), command(false, "INCR", "x"), command(false, "EXEC")), "+OK\r\n+QUEUED\r\n*1\r\n:1\r\n", map[string]uint64{"MULTI": 1, "INCR": 1, "EXEC": 1}, Going},
		{"denied subscription", slices.Concat(command(false, "subscribe", "a"), command(false, "ping")), "-NOPERM\r\n+PONG\r\n", map[string]uint64{"SUBSCRIBE": 1, "PING": 1}, Going},
		{"end of subscriptions", slices.Concat(command(false, "unsubscribe"), command(false, "ping")), "*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n+PONG\r\n", map[string]uint64{"push": 1, "PING": 1}, Going},
		{"monitor", slices.Concat(command(false, "monitor"), command(false, "ping")), "+OK\r\n+1 [0 x]\r\n", map[string]uint64{"MONITOR": 1, "push": 1}, Going},
		{"no answers", slices.Concat(command(false, "ping"), command(false, "client", "reply", "skip"), command(false, "get", "x"), command(false, "ping")), "+PONG\r\n+PONG\r\n", map[string]uint64{"PING": 1, "unknown": 1}, Going},
		{"replica", slices.Concat(command(false, "ping"), command(false, "psync", "?", "-1")), "+PONG\r\n+FULLRESYNC", map[string]uint64{"PING": 1}, Opaque},
		{"empty commands", slices.Concat([]byte("*0\r\n\r\n"), command(true, "ping"), []byte("*-1\r\n")), "+PONG\r\n", map[string]uint64{"PING": 1}, Going},
		{"bad name", command(false, strings.Repeat("x", 40)), "-ERR\r\n", map[string]uint64{"other": 1}, Going},
		{"no command", []byte("*1\r\n+ping\r\n"), "-ERR\r\n", map[string]uint64{"unknown": 1}, Going},
	} {
		for _, next := range []chunker{whole, single} {
			got := play(t, Config{Framing: Resp}, wire{c.request, []byte(c.answers), []byte(c.answers)}, next, true)
			for name, n := range c.want {
				if f := count(got, name); f != (Figures{Equal: n}) && (c.stopped == Going || f.Equal+f.Unsettled != n) {
					t.Errorf("%s: %s: %+v", c.name, name, count(got, name))
				}
			}
			if len(got.Names) != len(c.want) || c.stopped != Going && got.Stopped[c.stopped.String()] != 1 {
				t.Errorf("%s: %+v", c.name, got)
			}
		}
	}
}

// TestRespLengths: strings that would be the same bytes without their lengths differ.
func TestRespLengths(t *testing.T) {
	w := wire{command(false, "MGET", "x", "y"), command(false, "a\r\n$b", "c"), command(false, "a", "b\r\n$c")}
	if got := play(t, Config{Framing: Resp}, w, single, true); count(got, "MGET") != (Figures{Different: 1}) {
		t.Errorf("%+v", got)
	}
}

// TestRespMasks: by pattern within a string, and by command.
func TestRespMasks(t *testing.T) {
	request := slices.Concat(command(false, "TIME"), command(false, "INFO"), command(false, "GET", "x"))
	w := wire{
		request,
		[]byte("*2\r\n$2\r\n17\r\n$1\r\n5\r\n$17\r\nuptime:9\nother:1\n\r\n$1\r\n7\r\n"),
		[]byte("*2\r\n$2\r\n18\r\n$2\r\n66\r\n$19\r\nuptime:999\nother:1\n\r\n$1\r\n8\r\n"),
	}
	got := play(t, Config{Framing: Resp, Mask: []Mask{{Field: "resp.answer", Name: "time"}, {Pattern: `uptime:\d+`, Name: "info"}}}, w, single, true)
	if count(got, "TIME") != (Figures{Masked: 1}) || count(got, "INFO") != (Figures{Equal: 1}) || count(got, "GET") != (Figures{Different: 1}) {
		t.Errorf("%+v", got)
	}
}

// TestSkipped: bytes that did not come into the process are no loss within a value, and else the
// names of further commands.
func TestSkipped(t *testing.T) {
	for _, c := range []struct {
		skip int
		name string
	}{{100_000, "GET"}, {100_002, "GET"}, {100_003, "unknown"}} {
		plan, _ := NewPlan(Config{Framing: Resp})
		r := NewReport()
		s := plan.NewSession(NewBudget(TotalBytes), r)
		set := command(false, "SET", "x", strings.Repeat("v", 100_000))
		rest := slices.Concat(set[len(set)-100_002:], command(false, "GET", "x"))
		s.Request(set[:len(set)-100_002], at(0))
		s.RequestSkipped(c.skip)
		s.Request(rest[c.skip:], at(0))
		s.Primary([]byte("+OK\r\n+v\r\n"), at(0))
		s.Shadow([]byte("+OK\r\n+v\r\n"), at(0))
		s.End(true, at(0))
		if got := r.Snapshot(); count(got, c.name).Equal == 0 || (c.name == "unknown") != (got.Unnamed == 1) {
			t.Errorf("%d skipped: %+v", c.skip, got)
		}
	}
}

// TestUnframed: answers that are of another protocol are a difference if they are the shadow's.
func TestUnframed(t *testing.T) {
	good, bad := []byte("$1\r\n7\r\n"), []byte("HTTP/1.1 400 Bad Request\r\n")
	request := command(false, "GET", "x")
	got := play(t, Config{Framing: Resp}, wire{request, good, bad}, single, true)
	if got.Different != 1 || got.ShadowUnframed != 1 || got.Unsettled != 0 || got.Stopped["unframed"] != 1 {
		t.Errorf("%+v", got)
	}
	if got = play(t, Config{Framing: Resp}, wire{request, bad, good}, single, true); got.Different != 0 || got.ShadowUnframed != 0 || got.Stopped["unframed"] != 1 {
		t.Errorf("%+v", got)
	}
}

func FuzzResp(f *testing.F) {
	f.Add(command(false, "get", "x"), []byte("$1\r\n7\r\n"), []byte("*1\r\n$1\r\n8\r\n"), uint8(3))
	f.Add(command(false, "subscribe", "x"), []byte("*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n"), []byte(">3\r\n$7\r\nmessage\r\n_\r\n|1\r\n+a\r\n+b\r\n#t\r\n"), uint8(1))
	f.Add(command(true, "client", "reply", "off"), []byte("%1\r\n+a\r\n~0\r\n"), []byte("$-1\r\n"), uint8(9))
	fuzz(f, Config{Framing: Resp, Mask: []Mask{{Pattern: "[0-9]{2}"}}})
}

func BenchmarkResp(b *testing.B) {
	n := 10_000
	bench(b, Config{Framing: Resp}, nil, bytes.Repeat([]byte("$100\r\n"+strings.Repeat("v", 100)+"\r\n"), n))
}
