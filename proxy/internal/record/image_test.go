package record_test

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/relay"
)

// image returns an image in which everything is set that an image has.
func image() record.Image {
	m := record.Image{Record: full()}
	m.TLS, m.Failures = false, [record.MaxFailures]record.Failure{} // they are not kept
	m.Listener, m.Upstream, m.Endpoint, m.EndpointPath = "web", "shop", "one", "/run/x"
	m.User, m.Database, m.Protocol, m.Host, m.Path = "u", "d", "http/1", "h", "/p"
	m.Result.AToB, m.Result.BToA = relay.Flow{Spliced: 1, Copied: 1 << 40, Carried: 3}, relay.Flow{Spliced: 4, Copied: 5, Carried: 6}
	m.Timeouts = record.Timeouts{Known: true, Idle: time.Hour, HalfClose: 7 * time.Millisecond, Lifetime: 24 * time.Hour, Jitter: 0.125}
	m.Names = [3]uint32{record.HashOf("web"), record.HashOf("shop"), record.HashOf("one")}
	return m
}

// decoded returns the image of bytes, by a clock on which it was joined when the one of image was.
func decoded(t *testing.T, b []byte) record.Image {
	t.Helper()
	m, err := record.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	m.JoinedAt(full().Joined)
	return *m
}

// TestImage: an image is what it was made of, whole or with nothing in it, behind other bytes too.
func TestImage(t *testing.T) {
	whole, unix := image(), image()
	unix.Client = source.Unix(source.Credentials{UID: math.MaxUint32, GID: 2, PID: -1})
	unix.Timeouts = record.Timeouts{Known: true}
	for name, m := range map[string]record.Image{"whole": whole, "unix": unix} {
		b := m.Encode([]byte("before"))
		m.ID, m.Names = decoded(t, b[6:]).ID, whole.Names
		if d := cmp.Diff(m, decoded(t, b[6:]), comparable); d != "" || m.ID.IsZero() {
			t.Errorf("%s: %s", name, d)
		}
	}
	none := decoded(t, new(record.Image).Encode(nil))
	if d := cmp.Diff(record.Image{Record: record.Record{Accepted: full().Joined, Joined: full().Joined}}, none, comparable); d != "" {
		t.Error(d)
	}
}

// TestTag: the kernel has room for what identifies a session and its bytes in any case, then for the client's address of a PROXY header, also of IPv6, and for a course without one.
func TestTag(t *testing.T) {
	whole := image()
	tag := whole.Tag()
	got := decoded(t, tag[:])
	want := record.Image{Names: whole.Names, Timeouts: whole.Timeouts, Record: record.Record{ID: whole.ID, Rest: record.Rest{Source: whole.Source}, Result: whole.Result}}
	want.Timeouts = got.Timeouts // if there is room
	want.Accepted, want.Joined = full().Joined, full().Joined
	if d := cmp.Diff(want, got, comparable); d != "" {
		t.Error(d)
	}
	plain := image()
	plain.Record = record.Record{ID: whole.ID, Listener: "web", Upstream: "shop", Endpoint: "one", Result: whole.Result, Accepted: 5e9, Begun: 5e9 + 3e3, Routed: 5e9 + 40e3, Picked: 5e9 + 41e3, Connecting: 5e9 + 42e3, Joined: 5e9 + 700e3, ClientFirst: 5e9 + 20e6, EndpointFirst: 5e9 + 30e6}
	plain.Timeouts.HalfClose, plain.Timeouts.Lifetime, plain.Timeouts.Jitter = 0, 0, 0
	tag = plain.Tag()
	got = decoded(t, tag[:])
	plain.Accepted, plain.EndpointFirst = full().Joined-700e3, full().Joined-700e3+30e6
	if got.Timeouts != plain.Timeouts || got.EndpointFirst != plain.EndpointFirst || got.Accepted != plain.Accepted || got.Result.AToB != plain.Result.AToB {
		t.Errorf("%+v", got)
	}
	again := got
	again.Result = relay.Result{AToB: relay.Flow{Copied: 9}}
	tag = again.Tag()
	if last := decoded(t, tag[:]); last.Names != whole.Names || last.Result.AToB.Copied != 9 || last.Accepted != plain.Accepted || last.ID != whole.ID {
		t.Errorf("changed: %+v", last)
	}
}

// TestImageOfAnother: fields that are newer are skipped, and so is what is longer. Another version, and no image, are refused as such.
func TestImageOfAnother(t *testing.T) {
	m := image()
	b := m.Encode(nil)
	newer := protowire.AppendVarint(protowire.AppendTag(b[:1:1], 99, protowire.VarintType), 7)
	newer = protowire.AppendFixed64(protowire.AppendTag(newer, 15_000, protowire.Fixed64Type), 7)
	newer = protowire.AppendBytes(protowire.AppendTag(newer, 100, protowire.BytesType), bytes.Repeat([]byte{1}, 300))
	newer = protowire.AppendBytes(protowire.AppendTag(newer, 3, protowire.BytesType), []byte{1, 2, 3, 4, 5, 6, 7, 8})
	if got := decoded(t, append(newer, b[1:]...)); got.ID != m.ID || got.Result.AToB != m.Result.AToB {
		t.Errorf("%+v", got)
	}
	for name, b := range map[string][]byte{"empty": nil, "zero": make([]byte, record.TagSize), "newer": append([]byte{2}, b[1:]...)} {
		if _, err := record.Decode(b); !errors.Is(err, record.ErrVersion) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzDecode: whatever the bytes are, what is read of them can be written and read again, and is bounded; and an image that is cut short is an error, or has a part of it.
func FuzzDecode(f *testing.F) {
	whole := image()
	tag := whole.Tag()
	for _, b := range [][]byte{whole.Encode(nil), tag[:], {1}, {1, 0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f}, {1, 0x1a, 1, 0x80}} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for end := range len(b) {
			_, _ = record.Decode(b[:end])
		}
		m, err := record.Decode(b)
		if err != nil {
			return
		}
		for _, at := range []*relay.Flow{&m.Result.AToB, &m.Result.BToA} {
			if min(at.Spliced, at.Copied, at.Carried) < 0 || at.Bytes() < 0 {
				t.Errorf("%+v", at)
			}
		}
		tag := m.Tag()
		if _, err := record.Decode(tag[:]); err != nil {
			t.Errorf("as a tag: %v", err)
		}
		again, err := record.Decode(m.Encode(nil))
		if err != nil {
			t.Fatal(err)
		}
		if m.Listener != "" || m.Upstream != "" || m.Endpoint != "" {
			m.Names = again.Names // of the names
		}
		m.JoinedAt(1e18)
		again.JoinedAt(1e18)
		if d := cmp.Diff(m, again, comparable); d != "" {
			t.Error(d)
		}
	})
}
