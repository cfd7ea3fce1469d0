package translate_test

import (
	"bytes"
	"testing"

	"github.com/penstock/penstock/lane/internal/frame"
	"github.com/penstock/penstock/lane/internal/translate"
)

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
