package translate_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"github.com/penstock/penstock/lane/internal/frame"
	"github.com/penstock/penstock/lane/internal/translate"
)

var (
	client4, here4    = netip.MustParseAddrPort("192.0.2.1:40000"), netip.MustParseAddrPort("192.0.2.2:443")
	source4, server4  = netip.MustParseAddrPort("198.51.100.1:51000"), netip.MustParseAddrPort("198.51.100.2:8443")
	client6, here6    = netip.MustParseAddrPort("[2001:db8::1]:40000"), netip.MustParseAddrPort("[2001:db8::2]:443")
	source6, server6  = netip.MustParseAddrPort("[2001:db8:1::1]:51000"), netip.MustParseAddrPort("[2001:db8:1::2]:8443")
	timestamps        = []byte{1, 1, 8, 10, 0, 0, 0x10, 0, 0xff, 0xff, 0xff, 0xf0}
	sackFirst         = []byte{5, 18, 0, 0, 0, 9, 0, 0, 0, 12, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 3, 8, 10, 0, 0, 0x10, 0, 0xff, 0xff, 0xff, 0xf0, 1, 1}
	afterUnknown      = []byte{254, 6, 1, 2, 3, 4, 8, 10, 0, 0, 0x10, 0, 0xff, 0xff, 0xff, 0xf0, 0, 8}
	badLength         = []byte{254, 0, 8, 10, 0, 0, 0, 1, 0, 0, 0, 1}
	forth             = translate.Side{Source: source4, Destination: server4, Sequence: 0xfffffff0, Acknowledged: 1000, Time: 0xffffff00, Echo: 0x20, Scale: 7, Unit: 7}
	forth6            = translate.Side{Source: source6, Destination: server6, Sequence: 77, Acknowledged: 0x80000000, Time: 5, Echo: 6, Scale: 7, Unit: 7}
	data              = frame.Packet{From: client4, To: here4, Seq: 20, Ack: 500, Flags: translate.ACK | translate.PSH, Window: 501, Payload: []byte("odd")}
	everyOptionLayout = map[string][]byte{"none": nil, "timestamps": timestamps, "SACK first": sackFirst, "after an unknown one": afterUnknown, "bad length": badLength}
)

func TestPacket(t *testing.T) {
	for name, options := range everyOptionLayout {
		for _, family := range []string{"IPv4", "IPv6"} {
			t.Run(family+", "+name, func(t *testing.T) {
				p, s, want := data, forth, data
				if family == "IPv6" {
					p.From, p.To, s = client6, here6, forth6
				}
				p.Options, p.Traffic = options, 0x03 // congestion experienced
				want = p
				want.From, want.To = s.Source, s.Destination
				want.Seq, want.Ack = p.Seq+s.Sequence, p.Ack-s.Acknowledged
				want.Options = shifted(options, s)
				b := p.Bytes()
				if err := s.Packet(b); err != nil || !bytes.Equal(b, want.Bytes()) {
					t.Fatalf("%v\ngot  %x\nwant %x", err, b, want.Bytes())
				}
				back := inverse(s, p.From, p.To, 0)
				if err := back.Packet(b); err != nil || !bytes.Equal(b, p.Bytes()) {
					t.Fatalf("and back: %v\ngot  %x\nwant %x", err, b, p.Bytes())
				}
			})
		}
	}
}

// shifted knows where the layouts above have their numbers.
func shifted(options []byte, s translate.Side) []byte {
	o := append([]byte(nil), options...)
	plus := func(i int, n uint32) { binary.BigEndian.PutUint32(o[i:], binary.BigEndian.Uint32(o[i:])+n) }
	switch len(options) {
	case len(timestamps):
		if o[0] == 1 {
			plus(4, s.Time)
			plus(8, -s.Echo)
		}
	case len(sackFirst):
		for i := 2; i < 18; i += 4 {
			plus(i, -s.Acknowledged)
		}
		plus(20, s.Time)
		plus(24, -s.Echo)
	case len(afterUnknown):
		plus(8, s.Time)
		plus(12, -s.Echo)
	}
	return o
}

// TestOffered: an endpoint may use all of the window that it is shown, and all of the one that there is.
func TestOffered(t *testing.T) {
	for _, c := range []struct {
		scale, unit uint8
		in          uint16
		want        uint32
	}{{7, 7, 501, 501 << 7}, {0, 7, 100, 128}, {0, 7, 300, 300}, {7, 0, 600, 600 << 7}, {0, 7, 0, 0}} {
		s := translate.Side{Scale: c.scale, Unit: c.unit}
		if got := s.Offered(c.in); got != c.want {
			t.Errorf("%d with scale %d in unit %d: %d, want %d", c.in, c.scale, c.unit, got, c.want)
		}
	}
}

func TestWindow(t *testing.T) {
	for _, c := range []struct {
		scale, unit uint8
		in, want    uint16
	}{
		{7, 7, 501, 501},
		{10, 7, 501, 4008},
		{0, 7, 501, 3},
		{7, 0, 501, 64128},
		{7, 0, 600, 65535}, // the other side has no scale
		{0, 7, 100, 1},     // not 0, which is only ended by an update
		{14, 0, 0, 0},
		{14, 0, 65535, 65535},
	} {
		p, s := data, forth
		p.Window, s.Scale, s.Unit = c.in, c.scale, c.unit
		b := p.Bytes()
		if err := s.Packet(b); err != nil || binary.BigEndian.Uint16(b[34:]) != c.want || !frame.Right(b) {
			t.Errorf("%d with scale %d in unit %d is %d, want %d (%v)", c.in, c.scale, c.unit, binary.BigEndian.Uint16(b[34:]), c.want, err)
		}
	}
}

// TestUrgent: an urgent pointer counts from the sequence number, and stays.
func TestUrgent(t *testing.T) {
	p := data
	p.Flags |= translate.URG
	b := p.Bytes()
	binary.BigEndian.PutUint16(b[38:], 3)
	binary.BigEndian.PutUint16(b[36:], frame.Checksum(b))
	if err := forth.Packet(b); err != nil || binary.BigEndian.Uint16(b[38:]) != 3 || !frame.Right(b) {
		t.Errorf("%v: %x", err, b)
	}
}

func TestNotTranslated(t *testing.T) {
	change := func(i int, v byte) []byte { b := data.Bytes(); b[i] = v; return b }
	v6 := data
	v6.From, v6.To = client6, here6
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"nothing":          {nil, translate.ErrTruncated},
		"half a header":    {data.Bytes()[:30], translate.ErrTruncated},
		"UDP":              {change(9, 17), translate.ErrOther},
		"version 5":        {change(0, 0x55), translate.ErrOther},
		"fragment":         {change(6, 0x20), translate.ErrFragment},
		"second fragment":  {change(7, 1), translate.ErrFragment},
		"options of IP":    {change(0, 0x46), translate.ErrOptions},
		"short TCP header": {change(32, 0x40), translate.ErrTruncated},
		"long TCP header":  {change(32, 0xf0), translate.ErrTruncated},
		"big TCP":          {change(3, 0), translate.ErrBig},
		"other family":     {v6.Bytes(), translate.ErrFamily},
	} {
		before := bytes.Clone(c.b)
		if err := forth.Packet(c.b); !errors.Is(err, c.want) || !bytes.Equal(c.b, before) {
			t.Errorf("%s: %v, want %v; changed: %v", name, err, c.want, !bytes.Equal(c.b, before))
		}
	}
}

// TestHopLimit: where packets are forwarded, the hop limit is that of a new packet.
func TestHopLimit(t *testing.T) {
	s, s6, p6 := forth, forth6, data
	s.HopLimit, s6.HopLimit, p6.From, p6.To = 64, 64, client6, here6
	b, b6 := data.Bytes(), p6.Bytes()
	if err := errors.Join(s.Packet(b), s6.Packet(b6)); err != nil || b[8] != 64 || b6[7] != 64 || !frame.Right(b) || !frame.Right(b6) {
		t.Error(err, b[8], b6[7])
	}
}

// inverse is the side that undoes s, for packets from and to those addresses.
func inverse(s translate.Side, from, to netip.AddrPort, hop uint8) translate.Side {
	return translate.Side{
		Source: from, Destination: to, HopLimit: hop,
		Sequence: -s.Sequence, Acknowledged: -s.Acknowledged, Time: -s.Time, Echo: -s.Echo,
		Scale: s.Unit, Unit: s.Scale,
	}
}

// FuzzPacket: whatever the bytes, a packet is left alone with an error, or it has right checksums
// if it had them, the same length, flags and payload, and is the same again after the way back.
func FuzzPacket(f *testing.F) {
	for _, options := range everyOptionLayout {
		p := data
		p.Options = options
		f.Add(p.Bytes(), uint32(1), uint32(2), uint32(3), uint32(4), uint8(7))
		p.From, p.To = client6, here6
		f.Add(p.Bytes(), uint32(1<<31), uint32(1<<32-1), uint32(0), uint32(9), uint8(0))
	}
	f.Fuzz(func(t *testing.T, b []byte, seq, ack, time, echo uint32, scale uint8) {
		l, err := translate.Parse(b)
		s := translate.Side{Source: source4, Destination: server4, Sequence: seq, Acknowledged: ack, Time: time, Echo: echo, Scale: scale % 15, Unit: scale % 15}
		from, to := client4, here4
		if l.V6 {
			s.Source, s.Destination, from, to = source6, server6, client6, here6
		}
		if err == nil { // as a packet of the connection, with right checksums
			b = b[:l.TCP+l.Header+min(l.Payload, len(b)-l.TCP-l.Header)]
			frame.Address(b, from, to)
		}
		before := bytes.Clone(b)
		if got := s.Packet(b); err != nil {
			if got == nil || !bytes.Equal(b, before) {
				t.Fatalf("%v and %v; changed: %v", err, got, !bytes.Equal(b, before))
			}
			return
		}
		if rightBefore := frame.Right(before); rightBefore && !frame.Same(b) {
			t.Fatalf("checksums are wrong: %x", b)
		}
		if !bytes.Equal(b[l.TCP+l.Header:], before[l.TCP+l.Header:]) || b[l.TCP+13] != before[l.TCP+13] || len(b) != len(before) {
			t.Fatal("flags or payload have changed")
		}
		back := inverse(s, from, to, 0)
		if err := back.Packet(b); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, before) && !frame.Alike(b, before) {
			t.Fatalf("there and back:\n%x\n%x", before, b)
		}
	})
}
