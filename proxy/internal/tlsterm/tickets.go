package tlsterm

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"sync/atomic"
	"time"
)

// A TicketsConfig says how long the keys of session tickets are used.
type TicketsConfig struct {
	// Rotate is how long a key makes new tickets; 0: 8 h.
	Rotate time.Duration

	// Keep is how many keys are kept, including the newest: a ticket is accepted for at least (Keep-1)*Rotate; 0: 3.
	Keep int

	// Now is the clock. Its monotonic readings count ([time.Time.Sub]), so setting the time of day
	// neither stops nor hastens anything. Nil: time.Now.
	Now func() time.Time
}

// Tickets are the secrets from which the keys of session tickets are made. They are never stored. All listeners of a
// process share the secrets, and each listener makes its own keys. The secrets are kept over reloads, so that earlier
// tickets stay valid. Tickets are safe for concurrent use.
type Tickets struct {
	rotate time.Duration
	keep   int
	now    func() time.Time
	began  time.Time

	mu      sync.Mutex
	secrets []secret      // the newest first, never empty
	count   atomic.Uint64 // number of secrets made so far
	due     atomic.Int64  // time since began (a time.Duration) at which the next secret is made
}

type secret struct {
	value [32]byte
	made  time.Duration // since began
}

// NewTickets returns tickets with a first secret.
func NewTickets(cfg *TicketsConfig) *Tickets {
	t := &Tickets{rotate: 8 * time.Hour, keep: 3, now: time.Now}
	if cfg != nil && cfg.Rotate > 0 {
		t.rotate = cfg.Rotate
	}
	if cfg != nil && cfg.Keep > 0 {
		t.keep = cfg.Keep
	}
	if cfg != nil && cfg.Now != nil {
		t.now = cfg.Now
	}
	t.began = t.now()
	t.renew(0)
	return t
}

// age returns the time since the first secret was made.
func (t *Tickets) age() time.Duration { return t.now().Sub(t.began) }

// renew makes a secret, and forgets secrets that are too old. The caller holds t.mu, or is the only user.
func (t *Tickets) renew(now time.Duration) {
	fresh := secret{made: now}
	rand.Read(fresh.value[:]) // never fails
	kept := []secret{fresh}
	for _, s := range t.secrets {
		if len(kept) < t.keep && now-s.made < time.Duration(t.keep)*t.rotate {
			kept = append(kept, s)
		}
	}
	t.secrets = kept
	t.due.Store(int64(now + t.rotate))
	t.count.Add(1)
}

// refresh gives a state the present keys, unless it has them.
func (t *Tickets) refresh(name string, st *state) {
	now := t.age()
	if int64(now) < t.due.Load() && st.keys.Load() == t.count.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if int64(now) >= t.due.Load() {
		t.renew(now)
	}
	if st.keys.Load() == t.count.Load() {
		return
	}
	keys := make([][32]byte, len(t.secrets))
	for i, s := range t.secrets {
		keys[i] = s.derive(name, st.bind)
	}
	st.config.SetSessionTicketKeys(keys)
	st.keys.Store(t.count.Load())
}

// derive makes the key of a listener. The key depends on the authorities for clients, so that a session is not resumed
// if other authorities have admitted it.
func (s *secret) derive(name string, bind []byte) (key [32]byte) {
	made, err := hkdf.Key(sha256.New, s.value[:], bind, "penstock session ticket "+name, len(key))
	if err != nil {
		panic(err) // only if HKDF cannot make a key of this length
	}
	copy(key[:], made)
	return key
}
