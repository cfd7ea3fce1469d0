package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/zeebo/xxh3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/relay"
)

// An Image describes a session to another process. The kernel keeps an image beside the session's account in the
// lane, for a process that adopts the session. An image can also be sent to a process together with the session's
// descriptors. A field that an image lacks is zero, which means not known.
//
// The encoding is a byte for the version, and then fields. A field is a number and a value with its length, as in
// Protocol Buffers. A zero byte in place of a field ends the image. A new field gets a new number, and a value may
// get longer. Neither needs a new version: a reader skips the numbers that it does not know, and the unknown end
// of a longer value. An image of another version is refused, because its fields mean something else.
//
// The image does not say whether the session is logged and traced, because that follows from its ID.
type Image struct {
	// Record has the course of the session. Its Result has only the bytes that were moved, by direction and
	// engine; without bytes, they are not known. Its names are empty if the image has only their hashes. Its times
	// may be of any clock, see JoinedAt.
	Record
	// Names are the hashes of the listener, the upstream and the endpoint. 0 means that there is no name, or that
	// it is not known.
	Names [3]uint32
	// Timeouts are the timeouts that the session began with.
	Timeouts Timeouts
}

// Timeouts are a session's timeouts in an [Image]. The encoding has them in whole milliseconds, and the jitter in
// thousandths.
type Timeouts struct {
	Known                     bool
	Idle, HalfClose, Lifetime time.Duration
	Jitter                    float64
}

// TimeoutsOf returns the timeouts of limits. If l is nil, they are not known.
func TimeoutsOf(l *relay.Limits) Timeouts {
	if l == nil {
		return Timeouts{}
	}
	return Timeouts{true, l.IdleTimeout, l.HalfCloseTimeout, l.MaxLifetime, l.LifetimeJitter}
}

// Limits returns limits with these timeouts.
func (t Timeouts) Limits() relay.Limits {
	return relay.Limits{IdleTimeout: t.Idle, HalfCloseTimeout: t.HalfClose, MaxLifetime: t.Lifetime, LifetimeJitter: t.Jitter}
}

const (
	// TagSize is the space for an image beside a session's account in the lane, in bytes.
	TagSize = 80
	// version is the version of the encoding, see [Image].
	version = 1
)

// The indexes of [Image.Names].
const (
	OfListener = iota
	OfUpstream
	OfEndpoint
)

// HashOf returns the hash of a name. It is never 0, which stands for no name.
func HashOf(name string) uint32 { return max(uint32(xxh3.HashString(name)), 1) }

// ErrVersion means that an image has another version of the encoding. Version 0 means that there is no image.
var ErrVersion = errors.New("the record of the session has another version")

// Encode appends the whole image.
func (m *Image) Encode(dst []byte) []byte {
	dst = append(dst, version)
	for n, f := range &fields {
		dst, _ = f.encode(dst, protowire.Number(n), m)
	}
	return dst
}

// Tag returns the image as the kernel keeps it. Fields with low numbers come first, and fields for which there is
// no space are left out. Names are only hashes. What the account in the lane has is left out, too.
func (m *Image) Tag() (tag [TagSize]byte) {
	b := append(make([]byte, 0, TagSize), version)
	var room [2 + maxText]byte
	for n, f := range &fields {
		if one, more := f.encode(room[:0], protowire.Number(n), m); more && !f.beside && len(b)+len(one) <= len(tag) {
			b = append(b, one...)
		}
	}
	copy(tag[:], b)
	return tag
}

// encode appends a field of m with its number, unless the field is empty.
func (f *field) encode(b []byte, n protowire.Number, m *Image) (all []byte, more bool) {
	if f.append == nil {
		return b, false
	}
	var room [maxText]byte
	v := f.append(room[:0], m)
	if len(v) == 0 {
		return b, false
	}
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v), true
}

// Decode decodes bytes from any source. All values are limited, as in the records of this process. The error wraps
// [ErrVersion], or says that a field is damaged.
func Decode(b []byte) (*Image, error) {
	if len(b) == 0 || b[0] != version {
		return nil, fmt.Errorf("%w: %d, want %d", ErrVersion, append(b, 0)[0], version)
	}
	m := new(Image)
	for b = b[1:]; len(b) > 0 && b[0] != 0; {
		n, is, size := protowire.ConsumeTag(b)
		if size < 0 {
			return nil, fmt.Errorf("record of a session: %w", protowire.ParseError(size))
		}
		b = b[size:]
		if is != protowire.BytesType || int(n) >= len(fields) || fields[n].read == nil {
			if size = protowire.ConsumeFieldValue(n, is, b); size < 0 {
				return nil, fmt.Errorf("record of a session: field %d: %w", n, protowire.ParseError(size))
			}
			b = b[size:]
			continue
		}
		v, size := protowire.ConsumeBytes(b)
		if size < 0 || !fields[n].read(m, v) {
			return nil, fmt.Errorf("record of a session: field %d is damaged", n)
		}
		b = b[size:]
	}
	return m, nil
}

// JoinedAt moves the times of the image to a clock by which the session was joined at the time at. If the image
// has no times, the session counts as accepted at that time.
func (m *Image) JoinedAt(at int64) {
	d := at - m.Joined
	if m.Joined == 0 {
		m.Accepted, m.Joined = at, at
		return
	}
	m.Accepted += d
	for _, t := range m.times() {
		if *t != 0 {
			*t += d
		}
	}
}

type field struct {
	beside bool // not in a tag: the account in the lane has the value, or a hash stands for it
	append func(b []byte, m *Image) []byte
	read   func(m *Image, v []byte) bool // returns false if the value is damaged
}

// fields are the fields by their numbers, which never change. In a tag, low numbers come first, so they are the
// most important fields.
var fields = [...]field{
	1:  {append: appendNames, read: readNames},
	2:  {append: appendID, read: readID},
	3:  {append: appendMoved, read: readMoved},
	4:  addressField(func(m *Image) *netip.AddrPort { return &m.Source }),
	5:  {append: appendTimeouts, read: readTimeouts},
	6:  {append: appendCourse, read: readCourse},
	7:  addressField(func(m *Image) *netip.AddrPort { return &m.Destination }),
	8:  textField(MaxServerName, func(m *Image) *string { return &m.ServerName }),
	9:  textField(MaxProtocols, func(m *Image) *string { return &m.Protocols }),
	10: textField(MaxLogin, func(m *Image) *string { return &m.User }),
	11: textField(MaxLogin, func(m *Image) *string { return &m.Database }),
	12: textField(MaxProtocols, func(m *Image) *string { return &m.Protocol }),
	13: textField(MaxHost, func(m *Image) *string { return &m.Host }),
	14: textField(MaxPath, func(m *Image) *string { return &m.Path }),
	15: textField(MaxTags, func(m *Image) *string { return &m.Tags }),

	16: beside(textField(maxText, func(m *Image) *string { return &m.Listener })),
	17: beside(textField(maxText, func(m *Image) *string { return &m.Upstream })),
	18: beside(textField(maxText, func(m *Image) *string { return &m.Endpoint })),
	19: beside(field{append: appendClient, read: readClient}),
	20: beside(addressField(func(m *Image) *netip.AddrPort { return &m.Local })),
	21: beside(addressField(func(m *Image) *netip.AddrPort { return &m.EndpointAddress })),
	22: beside(textField(maxText, func(m *Image) *string { return &m.EndpointPath })),
}

// maxText is the longest name of the configuration, and the longest path, in bytes.
const maxText = 256

func beside(f field) field {
	f.beside = true
	return f
}

func addressField(of func(*Image) *netip.AddrPort) field {
	return field{
		append: func(b []byte, m *Image) []byte { return appendAddress(b, *of(m)) },
		read:   func(m *Image, v []byte) bool { return readAddress(of(m), v) },
	}
}

func appendAddress(b []byte, at netip.AddrPort) []byte {
	if at.IsValid() {
		b, _ = at.AppendBinary(b) // it never fails
	}
	return b
}

// mostAddress is the size of an IPv6 address with a port and the name of an interface (IFNAMSIZ of linux/if.h).
const mostAddress = 16 + 2 + 15

func readAddress(at *netip.AddrPort, v []byte) bool {
	return len(v) <= mostAddress && at.UnmarshalBinary(v) == nil
}

func textField(most int, of func(*Image) *string) field {
	return field{
		append: func(b []byte, m *Image) []byte { return append(b, Bounded(*of(m), most)...) },
		read: func(m *Image, v []byte) bool {
			*of(m) = string(v)
			return len(v) <= most
		},
	}
}

// appendNumbers appends numbers, without zeros at the end.
func appendNumbers(b []byte, all ...uint64) []byte {
	for len(all) > 0 && all[len(all)-1] == 0 {
		all = all[:len(all)-1]
	}
	for _, n := range all {
		b = protowire.AppendVarint(b, n)
	}
	return b
}

// readNumbers reads numbers, and returns false if one is larger than most. Missing numbers stay 0, and further
// numbers are skipped.
func readNumbers(v []byte, most uint64, to ...*uint64) bool {
	for _, at := range to {
		if len(v) == 0 {
			return true
		}
		n, size := protowire.ConsumeVarint(v)
		if size < 0 || n > most {
			return false
		}
		*at, v = n, v[size:]
	}
	return true
}

func appendNames(b []byte, m *Image) []byte {
	names := m.Names
	for i, name := range [...]string{OfListener: m.Listener, OfUpstream: m.Upstream, OfEndpoint: m.Endpoint} {
		if name != "" {
			names[i] = HashOf(name)
		}
	}
	if names != [3]uint32{} {
		for _, n := range names {
			b = binary.LittleEndian.AppendUint32(b, n)
		}
	}
	return b
}

func readNames(m *Image, v []byte) bool {
	if len(v) < 4*len(m.Names) {
		return false
	}
	for i := range m.Names {
		m.Names[i] = binary.LittleEndian.Uint32(v[4*i:])
	}
	return true
}

func appendID(b []byte, m *Image) []byte {
	if !m.ID.IsZero() {
		b = append(b, m.ID[:]...)
	}
	return b
}

func readID(m *Image, v []byte) bool { return copy(m.ID[:], v) == len(m.ID) && !m.ID.IsZero() }

// mostMoved is more than any session moves, in bytes.
const mostMoved = 1 << 60

func (m *Image) moved() [6]*int64 {
	a, b := &m.Result.AToB, &m.Result.BToA
	return [...]*int64{&a.Spliced, &b.Spliced, &a.Copied, &b.Copied, &a.Carried, &b.Carried}
}

func appendMoved(b []byte, m *Image) []byte {
	var n [6]uint64
	for i, at := range m.moved() {
		n[i] = uint64(min(max(*at, 0), mostMoved))
	}
	return appendNumbers(b, n[:]...)
}

func readMoved(m *Image, v []byte) bool {
	var n [6]uint64
	ok := readNumbers(v, mostMoved, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5])
	for i, at := range m.moved() {
		*at = int64(n[i])
	}
	return ok
}

// appendTimeouts writes the idle timeout plus 1, so that there is at least one number if the timeouts are known.
func appendTimeouts(b []byte, m *Image) []byte {
	t := &m.Timeouts
	if !t.Known {
		return b
	}
	ms := func(d time.Duration) uint64 {
		return (uint64(max(d, 0)) + uint64(time.Millisecond) - 1) / uint64(time.Millisecond)
	}
	return appendNumbers(b, ms(t.Idle)+1, ms(t.HalfClose), ms(t.Lifetime), uint64(math.Round(1000*min(max(t.Jitter, 0), 1))))
}

func readTimeouts(m *Image, v []byte) bool {
	var idle, half, life, jitter uint64
	ok := readNumbers(v, math.MaxInt64/uint64(time.Millisecond), &idle, &half, &life, &jitter) && idle > 0 && jitter <= 1000
	ms := func(n uint64) time.Duration { return time.Duration(n) * time.Millisecond }
	m.Timeouts = Timeouts{ok, ms(max(idle, 1) - 1), ms(half), ms(life), float64(jitter) / 1000}
	return ok
}

// appendCourse writes the times of a session since it was accepted. It adds 1 to each, so that 0 means that the
// time is not known.
func appendCourse(b []byte, m *Image) []byte {
	if m.Joined == 0 {
		return b
	}
	var n [moments + 7]uint64
	for i, t := range m.times() {
		if *t != 0 {
			n[i] = uint64(momentOf(time.Duration(*t-m.Accepted))) + 1
		}
	}
	copy(n[moments:], []uint64{uint64(momentOf(m.Queued)), uint64(momentOf(m.Paused)), uint64(m.Waits), uint64(m.Retries), uint64(m.NumFailures), uint64(m.Before)})
	if m.Redispatched {
		n[moments+6] = 1
	}
	return appendNumbers(b, n[:]...)
}

func readCourse(m *Image, v []byte) bool {
	var n [moments + 7]uint64
	var to [len(n)]*uint64
	for i := range n {
		to[i] = &n[i]
	}
	if !readNumbers(v, math.MaxUint32, to[:]...) || n[atJoined] == 0 {
		return false
	}
	m.Accepted = 1 // any time except 0
	for i, t := range m.times() {
		if n[i] != 0 {
			*t = m.Accepted + int64(moment(n[i]-1).duration())
		}
	}
	m.Queued, m.Paused = moment(n[moments]).duration(), moment(n[moments+1]).duration()
	m.Waits, m.Retries, m.NumFailures, m.Before = uint16(n[moments+2]), uint16(n[moments+3]), uint16(n[moments+4]), uint32(n[moments+5])
	m.Redispatched = n[moments+6]&1 != 0
	return true
}

// appendClient writes the address of the client's connection, or the credentials of the client of a unix socket.
func appendClient(b []byte, m *Image) []byte {
	if c, unix := m.Client.Credentials(); unix {
		return appendNumbers(append(b, clientUnix), uint64(uint32(c.PID))+1, uint64(c.UID), uint64(c.GID))
	}
	if at := m.Client.AddrPort(); at.IsValid() {
		return appendAddress(append(b, clientTCP), at)
	}
	return b
}

const (
	clientTCP = iota
	clientUnix
)

func readClient(m *Image, v []byte) bool {
	if len(v) == 0 {
		return false
	}
	switch v[0] {
	case clientTCP:
		var at netip.AddrPort
		ok := readAddress(&at, v[1:])
		m.Client = source.TCP(at)
		return ok
	case clientUnix:
		var pid, uid, gid uint64
		ok := readNumbers(v[1:], 1<<32, &pid, &uid, &gid) && pid > 0
		m.Client = source.Unix(source.Credentials{PID: int32(pid - 1), UID: uint32(uid), GID: uint32(gid)})
		return ok
	}
	return true // an unknown kind, of a newer process
}
