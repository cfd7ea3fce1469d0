package mask_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/internal/mask"
)

// framed has a stream masked in pieces of the lengths that cut returns.
func framed(t testing.TB, s *mask.Set, text string, cut func() int) (string, mask.Totals, error) {
	t.Helper()
	counts := new(mask.Counts)
	m := s.NewMasker(counts)
	buffer := make([]byte, m.Room()+len(text))
	var out []byte
	for in := text; in != ""; {
		n, at := min(cut(), len(in)), m.Room()
		b := buffer[:at+copy(buffer[at:], in[:n])]
		from, to, err := m.Rewrite(b, at)
		if err != nil {
			return string(out), counts.Totals(), err
		}
		out, in = append(out, b[from:to]...), in[n:]
		if len(out)+m.Held() != len(text)-len(in) {
			t.Fatalf("%d bytes came out and %d are held, of %d", len(out), m.Held(), len(text)-len(in))
		}
	}
	from, to, err := m.Release(buffer)
	if err != nil {
		t.Fatal(err)
	}
	return string(append(out, buffer[from:to]...)), counts.Totals(), nil
}

// message is one of PostgreSQL, of which the type is 0 for the first one of a client.
func message(kind byte, body string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+len(body)))
	if kind != 0 {
		return string(kind) + string(b) + body
	}
	return string(b) + body
}

// values are texts with their count and lengths; null is one that is none.
func values(texts ...string) string {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(texts)))
	for _, text := range texts {
		if text == null {
			b = append(b, 0xff, 0xff, 0xff, 0xff)
			continue
		}
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(text))), text...)
	}
	return string(b)
}

const null = "null"

// texts are some, and how they are masked.
func texts(masked bool) (card, email, bearer, long, key string) {
	if masked {
		return "**** **** **** 1111", "***@*******.***", "Bearer ****************", strings.Repeat("*", 33) + "@*******.***", "ghp_" + strings.Repeat("*", 36)
	}
	return "4111 1111 1111 1111", "joe@example.com", "Bearer abcdefgh12345678", strings.Repeat("j", 33) + "@example.com", "ghp_" + strings.Repeat("a1", 18)
}

// answers and requests are streams of PostgreSQL, and values one of Redis: as they are, or as they are masked.
func answers(masked bool) string {
	card, email, bearer, long, key := texts(masked)
	return "NN" + message('R', "\x00\x00\x00\x05salt") + message('S', "TimeZone\x00joe@example.com\x00") + message('Z', "I") +
		message('T', "\x00\x01joe@example.com\x00"+strings.Repeat("\x00", 18)) +
		message('D', values(card)) + message('D', values(email, null, "", bearer)) + message('D', values(key)) + message('C', "SELECT 2\x00") +
		message('D', values(long)) + message('D', values("user1", "@example.com")) + message('D', values()) +
		message('E', "SERROR\x00M"+email+"\x00D\x00\x00") + message('N', "M"+card+"\x00\x00") + message('A', "1234joe\x00"+card+"\x00") +
		message('V', values(email)[2:]) + message('d', card+"\t"+email+"\n") + message('d', "") + message('d', key) + message('c', "") + message('Z', "I")
}

func requests(masked bool) string {
	card, email, bearer, long, key := texts(masked)
	return message(0, "\x04\xd2\x16\x30") + message(0, "\x04\xd2\x16\x2f") + message(0, "\x00\x03\x00\x00user\x00joe@example.com\x00\x00") + message('p', "joe@example.com\x00") +
		message('Q', "select '"+card+"', '"+email+"'\x00") + message('Q', email+"\x00") + message('P', "joe@example.com\x00"+bearer+"\x00\x00\x01\x00\x00\x00\x19") +
		message('B', "joe@example.com\x00\x00\x00\x01\x00\x00"+values(long, null, "", key)+"\x00\x00") + message('F', "1234\x00\x00"+values(card)+"\x00\x00") +
		message('D', "Sjoe@example.com\x00") + message('E', "\x00\x00\x00\x00\x00") + message('S', "") + message('d', email) + message('f', card+"\x00") + message('X', "")
}

func redis(masked bool) string {
	card, email, bearer, long, key := texts(masked)
	bulk := func(kind, text string) string { return fmt.Sprintf("%s%d\r\n%s\r\n", kind, len(text), text) }
	return "*3\r\n" + bulk("$", card) + bulk("$", email) + bulk("$", "") + "$-1\r\n:4111111111111111\r\n+" + email + "\r\n-ERR " + card + "\r\n_\r\n#t\r\n,1.5\r\n(4111111111111111\r\n" +
		bulk("=", "txt:"+bearer) + bulk("!", long) + "$?\r\n;" + bulk("", key) + ";0\r\n%1\r\n" + bulk("$", "user1") + bulk("$", "@example.com") + ">1\r\n" + bulk("$", "Bearer abc\r\ndefgh1234")
}

// TestFramed: the texts of a protocol are masked one by one, and nothing else is changed, at whatever byte the stream is split.
func TestFramed(t *testing.T) {
	for _, c := range []struct {
		name       string
		by         mask.Framing
		fromClient bool
		of         func(bool) string
	}{{"answers", mask.Postgres, false, answers}, {"requests", mask.Postgres, true, requests}, {"later", mask.Postgres, true, func(masked bool) string { return requests(masked)[8+8+30:] }}, {"redis", mask.RESP, false, redis}, {"commands", mask.RESP, true, func(masked bool) string {
		_, email, _, _, _ := texts(masked)
		return "PING " + email + "\r\n" + redis(masked)
	}}} {
		t.Run(c.name, func(t *testing.T) {
			s := newSet(t, all).Framed(c.by, c.fromClient)
			for size := 1; size < 40; size++ {
				for first := 1; first < 3*size; first++ {
					next := first
					got, n, err := framed(t, s, c.of(false), func() int { defer func() { next = size }(); return next })
					if err != nil || got != c.of(true) {
						t.Fatalf("in pieces of %d, then %d: %v\n%q, want\n%q", first, size, err, got, c.of(true))
					}
					if n.Late != 0 || n.Encrypted+n.Unframed != 0 {
						t.Fatalf("%+v", n)
					}
				}
			}
		})
	}
}

// TestFramedCopy: a match that goes on in the next message of COPY is masked from there on, and counted.
func TestFramedCopy(t *testing.T) {
	s := newSet(t, all).Framed(mask.Postgres, true)
	in := message('d', "pay 4111 1111 ") + message('d', "1111 1111\n")
	got, n, err := framed(t, s, in, whole(in))
	if want := message('d', "pay 4111 1111 ") + message('d', "**** 1111\n"); err != nil || got != want || n.Late != 8 {
		t.Errorf("%q, %v, %+v", got, err, n)
	}
}

// TestNotMasked: a stream that cannot be masked ends with an error, which is counted.
func TestNotMasked(t *testing.T) {
	const hello = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
	for _, c := range []struct {
		in         string
		by         mask.Framing
		fromClient bool
		want       error
	}{
		{hello, mask.Bytes, true, mask.ErrEncrypted},
		{"\x16\x03\x03\x00\x7a\x02\x00\x00\x76", mask.Bytes, false, mask.ErrEncrypted},
		{"S\x16\x03\x03\x00\x7a\x02\x00\x00\x76", mask.Bytes, false, mask.ErrEncrypted},
		{"220 ready to start TLS\r\n\x16\x16\x03\x03\x00\x7a\x02\x00\x00\x76", mask.Bytes, false, mask.ErrEncrypted},
		{message(0, "\x04\xd2\x16\x2f") + hello, mask.Bytes, true, mask.ErrEncrypted},
		{"SSH-2.0-OpenSSH_9.9\r\n", mask.Bytes, true, mask.ErrEncrypted},
		{"see SSH-2.0 \x16\x03 \x16\x03\x01\x02\x00\x07\x00", mask.Bytes, true, nil},
		{strings.Repeat("x", 16<<10) + hello, mask.Bytes, true, nil},
		{"S", mask.Postgres, false, mask.ErrEncrypted},
		{"NG", mask.Postgres, false, mask.ErrEncrypted},
		{message(0, "\x04\xd2\x16\x2f") + hello, mask.Postgres, true, mask.ErrEncrypted},
		{"\x16\x03\x03\x00\x7a\x02\x00\x00\x76", mask.Postgres, false, mask.ErrEncrypted},
		{hello, mask.RESP, false, mask.ErrEncrypted},
		{"HTTP/1.1 200 OK\r\n", mask.Postgres, false, mask.ErrUnframed},
		{message(0, "\x00\x02\x00\x00"), mask.Postgres, true, mask.ErrUnframed},
		{message('W', "\x00\x00\x00"), mask.Postgres, false, mask.ErrUnframed},
		{message('R', "") + message('d', "PGCOPY\n\xff\r\n\x00"), mask.Postgres, false, mask.ErrUnframed},
		{message('R', "") + message('D', "\x00\x01\x00\x00\x00\x09x"), mask.Postgres, false, mask.ErrUnframed},
		{message('R', "") + message('D', values("x")+"x") + "Z", mask.Postgres, false, mask.ErrUnframed},
		{message('R', "") + message('E', "Mx"), mask.Postgres, false, mask.ErrUnframed},
		{"$3\r\njoey\r\n", mask.RESP, false, mask.ErrUnframed},
		{"$x\r\n", mask.RESP, false, mask.ErrUnframed},
		{"$99999999999999\r\n", mask.RESP, false, mask.ErrUnframed},
		{"hello\r\n", mask.RESP, false, mask.ErrUnframed},
	} {
		for _, size := range []int{1, 3, len(c.in)} {
			got, n, err := framed(t, newSet(t, all).Framed(c.by, c.fromClient), c.in, func() int { return size })
			if !errors.Is(err, c.want) || c.want == nil && (err != nil || got != c.in) {
				t.Errorf("%q in pieces of %d: %v, want %v", c.in[:min(len(c.in), 40)], size, err, c.want)
			}
			if n.Encrypted > 0 != (c.want == mask.ErrEncrypted) || n.Unframed > 0 != (c.want == mask.ErrUnframed) {
				t.Errorf("%q: %+v", c.in[:min(len(c.in), 40)], n)
			}
		}
	}
}

// FuzzFramed: whatever comes and however it is cut, the length and the bytes that are not masked stay, and the cuts make no difference.
func FuzzFramed(f *testing.F) {
	for _, seed := range []string{answers(false), requests(false), redis(false), message('d', "joe@") + message('d', "example.com")} {
		f.Add(seed, uint8(1), uint64(1))
		f.Add(seed, uint8(2), uint64(2))
		f.Add(seed, uint8(5), uint64(3))
	}
	f.Fuzz(func(t *testing.T, text string, by uint8, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		s := newSet(t, all, own...).Framed(mask.Framing(by%3), by/3%2 == 1)
		want, n, err := framed(t, s, text, whole(text))
		got, m, failed := framed(t, s, text, func() int { return 1 + r.IntN(1+int(seed%9)) })
		if (err == nil) != (failed == nil) {
			t.Fatalf("%v as a whole, %v in pieces", err, failed)
		}
		if err == nil && (got != want || n != m) {
			t.Errorf("%q is %q, want %q; %+v, want %+v", text, got, want, m, n)
		}
		for i := range got {
			if got[i] != text[i] && got[i] != '*' {
				t.Fatalf("%q has become %q", text, got)
			}
		}
	})
}

// TestFramedAllocations: masking the texts of a protocol allocates nothing.
func TestFramedAllocations(t *testing.T) {
	text := strings.Repeat(message('D', values("4111 1111 1111 1111", "joe@example.com")), 20)
	m := newSet(t, all, own...).Framed(mask.Postgres, false).NewMasker(new(mask.Counts))
	b := make([]byte, m.Room()+len(text))
	if n := testing.AllocsPerRun(100, func() {
		copy(b[m.Room():], text)
		if _, _, err := m.Rewrite(b, m.Room()); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
