package soak

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
)

// id is the number of a connection.
type id struct{ round, n uint32 }

// String is "3.117".
func (i id) String() string { return fmt.Sprintf("%d.%d", i.round, i.n) }

// rough reports whether the round is one in which connections are torn down.
func rough(round uint32) bool { return round%2 == 0 }

// greeting is the length of the first bytes of a client, in which it names its
// connection.
const greeting = 12

const magic = 0x736f616b

var errNoGreeting = errors.New("what a client began with is not the number of a connection")

func (i id) greet() []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, greeting), magic)
	b = binary.BigEndian.AppendUint32(b, i.round)
	return binary.BigEndian.AppendUint32(b, i.n)
}

// parseGreeting parses a greeting by greet.
func parseGreeting(b []byte) (id, error) {
	if len(b) != greeting || binary.BigEndian.Uint32(b) != magic {
		return id{}, fmt.Errorf("%w: %x", errNoGreeting, b)
	}
	return id{binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])}, nil
}

// random is the source of everything that is drawn for a connection.
func (i id) random(seed uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(i.round)<<32|uint64(i.n)))
}
