package proxyproto_test

import (
	"bufio"
	"bytes"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/penstock/penstock/proxy/internal/proxyproto"
	pires "github.com/pires/go-proxyproto"
)

// FuzzHeader checks the guarantees of Length and Parse, and compares with go-proxyproto: a
// header that it accepts is accepted here, with the same contents.
func FuzzHeader(f *testing.F) {
	pires.V1AcceptIPv4InTCP6 = true // as nginx writes it
	f.Add([]byte("PROXY TCP4 192.0.2.1 198.51.100.2 5555 443\r\nabc"))
	f.Add([]byte("PROXY TCP6 2001:db8::1 ::2 5555 443\r\n"))
	f.Add([]byte("PROXY UNKNOWN x\r\n"))
	f.Add(v2(0x21, 0x11, body4...))
	f.Add(v2(0x20, 0x00))
	f.Add(v2(0x21, 0x31, make([]byte, 216)...))
	f.Add(proxyproto.Append(nil, 2, &proxyproto.Connection{Source: v6, Destination: v6b, Authority: "a.b", Checksum: true}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p *proxyproto.Policy
		var info proxyproto.Info
		n, err := p.Parse(b, &info)
		if err == nil {
			promised(t, b, n, &info)
		}
		same(t, b, n, &info, err)
	})
}

// promised checks the guarantees for a parsed header.
func promised(t *testing.T, b []byte, n int, info *proxyproto.Info) {
	var again proxyproto.Info
	if m, err := (*proxyproto.Policy)(nil).Parse(b[:n], &again); m != n || err != nil {
		t.Fatalf("alone it is read as %d bytes, %v", m, err)
	}
	for i := range n {
		if need, err := (*proxyproto.Policy)(nil).Length(b[:i]); err != nil || need <= i || need > n {
			t.Fatalf("of %d bytes %d are requested, %v; it has %d", i, need, err, n)
		}
	}
	if !info.Known() || info.Version == 1 {
		return
	}
	written := proxyproto.Append(nil, 2, &proxyproto.Connection{Source: info.Source, Destination: info.Destination, TLVs: info.TLVs})
	if _, err := (*proxyproto.Policy)(nil).Parse(written, &again); err != nil {
		t.Fatalf("its content was written, and cannot be read: %v", err)
	}
	if again.Source != info.Source || again.Destination != info.Destination {
		t.Fatalf("written and read again: %+v, was %+v", again, info)
	}
}

// same compares with the result of go-proxyproto.
func same(t *testing.T, b []byte, n int, info *proxyproto.Info, err error) {
	r := bufio.NewReaderSize(bytes.NewReader(b), 1<<17)
	h, other := pires.Read(r)
	if other != nil {
		return // it is stricter: UNSPEC, for one
	}
	if err != nil {
		if tlvs, e := h.TLVs(); e != nil || wrongSum(tlvs) {
			return // not checked by default
		}
		t.Fatalf("refused: %v; the other reads %+v", err, h)
	}
	if rest := r.Buffered(); rest != len(b)-n {
		t.Fatalf("%d of %d bytes read, and the other leaves %d", n, len(b), rest)
	}
	if int(h.Version) != info.Version || h.Version == 2 && h.Command.IsLocal() != info.Local {
		t.Fatalf("%+v, and the other reads %+v", info, h)
	}
	if info.Local || !info.Known() {
		return
	}
	for i, a := range []net.Addr{h.SourceAddr, h.DestinationAddr} {
		got := []netip.AddrPort{info.Source, info.Destination}[i]
		var want netip.AddrPort
		switch a := a.(type) {
		case *net.TCPAddr:
			want = a.AddrPort()
		case *net.UDPAddr:
			want = a.AddrPort()
		}
		if netip.AddrPortFrom(want.Addr().Unmap(), want.Port()) != got {
			t.Fatalf("address %v, and the other reads %v", got, want)
		}
	}
}

func wrongSum(tlvs []pires.TLV) bool {
	return slices.ContainsFunc(tlvs, func(v pires.TLV) bool { return v.Type == pires.PP2_TYPE_CRC32C })
}
