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

// An Image is what describes a session outside of its process: the kernel keeps one beside the session's account in the lane, for the
// process that adopts it, and another process can be sent one with the session's descriptors. What an image does not have is zero, and not known.
//
// Its encoding is a byte, the version, and then fields: a number and a value of a length, as messages of Protocol Buffers have them. A field
// that is added has a new number. A reader skips the numbers that it does not know, and the end of a value that is longer than it knows, so that
// neither needs a new version. Another version is refused: its fields mean something else. A zero byte where a field would begin is the end.
//
// Whether a session is logged and traced follows from its ID, so there is nothing else to keep of that.
type Image struct {
	// Record has the course. Its Result has the bytes that were moved, by direction and engine; none: that is not known. Its names are empty in an
	// image that has only hashes of them. Its times are of any one clock, see JoinedAt.
	Record
	// Names are the hashes of listener, upstream and endpoint; 0: none, or not known.
	Names [3]uint32
	// Timeouts are the timeouts that the session began with.
	Timeouts Timeouts
}

// Timeouts are a session's timeouts in an [Image], which has them in whole milliseconds, and the
// jitter in thousandths.
type Timeouts struct {
	Known                     bool
	Idle, HalfClose, Lifetime time.Duration
	Jitter                    float64
}

// TimeoutsOf returns the timeouts of limits; for nil they are not known.
func TimeoutsOf(l *relay.Limits) Timeouts {
	if l == nil {
		return Timeouts{}
	}
	return Timeouts{true, l.IdleTimeout, l.HalfCloseTimeout, l.MaxLifetime, l.LifetimeJitter}
}

// Limits are limits with these timeouts.
func (t Timeouts) Limits() relay.Limits {
	return relay.Limits{IdleTimeout: t.Idle, HalfCloseTimeout: t.HalfClose, MaxLifetime: t.Lifetime, LifetimeJitter: t.Jitter}
}

const (
	// TagSize is the room for an image beside a session's account in the lane, in bytes.
	TagSize = 80
	// version is the version of the encoding, see [Image].
	version = 1
)

// The positions of names in an [Image].
const (
	OfListener = iota
	OfUpstream
	OfEndpoint
)

// HashOf returns the hash of a name. It is never 0, which stands for no name.
func HashOf(name string) uint32 { return max(uint32(xxh3.HashString(name)), 1) }

// ErrVersion is the error of an image of another version of the encoding; 0: there is no image.
var ErrVersion = errors.New("the record of the session has another version")

// Encode appends the whole image.
func (m *Image) Encode(dst []byte) []byte {
	dst = append(dst, version)
	for n, f := range &fields {
		dst, _ = f.encode(dst, protowire.Number(n), m)
	}
	return dst
}

// Tag returns the image as the kernel keeps it: the fields that there is room for, those with a
// lower number first. Names are hashes, and what the account in the lane has is left out.
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

// encode appends the field of m with its number, unless it is empty.
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

// Decode returns the image of bytes of any origin. What it has is bounded like what this process
// records. The error wraps [ErrVersion], or says that a field is damaged.
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

// JoinedAt sets the times of the image on a clock by which the session was joined at a time. Without a course it was accepted then.
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

// A field is a part of an image.
type field struct {
	beside bool // the account in the lane has it, or hashes stand for it: no tag has it
	append func(b []byte, m *Image) []byte
	read   func(m *Image, v []byte) bool // false: it is damaged
}

// fields are the fields by their numbers, which do not change. The first ones are the most important in a tag.
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

// maxText bounds names of the configuration, and paths.
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
		b, _ = at.AppendBinary(b) // which never fails
	}
	return b
}

// mostAddress is an IPv6 address with a port, and the name of an interface (IFNAMSIZ of linux/if.h).
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

// appendNumbers appends numbers without the zeros at their end.
func appendNumbers(b []byte, all ...uint64) []byte {
	for len(all) > 0 && all[len(all)-1] == 0 {
		all = all[:len(all)-1]
	}
	for _, n := range all {
		b = protowire.AppendVarint(b, n)
	}
	return b
}

// readNumbers reads numbers, none above most. Missing numbers stay 0, and further numbers are
// skipped.
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

// mostMoved are bytes that no session moves.
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

// appendTimeouts writes the idle timeout plus 1, so that there is a number if the timeouts are
// known.
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

// appendCourse writes the times of a session since its accept, each plus 1, so that 0 means that
// the time is not known.
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
	m.Accepted = 1 // any clock, except for 0
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

// appendClient writes the address of the connection's other end, or the credentials of a unix socket.
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
	return true // a kind that is newer
}
