package pool_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/pool"
)

// A database is a server on the loopback interface that answers a line with a
// line. Like a real one it keeps state for each connection, here whether a
// transaction is open, and may hang up on a client at any time.
type database struct {
	listener net.Listener
	sessions sync.WaitGroup
}

func startDatabase() (*database, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	db := &database{listener: l}
	go db.serve()
	return db, nil
}

func (db *database) serve() {
	for {
		c, err := db.listener.Accept()
		if err != nil {
			return
		}
		db.sessions.Go(func() { session(c) })
	}
}

// session serves one connection until either side ends it.
func session(c net.Conn) {
	defer c.Close()
	state := "idle"
	expired := false
	for lines := bufio.NewScanner(c); lines.Scan(); {
		last := expired
		switch lines.Text() {
		case "begin":
			state = "in a transaction"
		case "rollback":
			state = "idle"
		case "expire": // hangs up after one more answer
			expired = true
		case "shutdown":
			return
		}
		fmt.Fprintln(c, state)
		if last {
			return
		}
	}
}

// A conn is a client's connection.
type conn struct {
	net.Conn
	replies *bufio.Reader
}

func (db *database) dial(ctx context.Context) (*conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", db.listener.Addr().String())
	if err != nil {
		return nil, err
	}
	return &conn{c, bufio.NewReader(c)}, nil
}

func (c *conn) query(q string) (string, error) {
	if _, err := fmt.Fprintln(c, q); err != nil {
		return "", err
	}
	reply, err := c.replies.ReadString('\n')
	return strings.TrimSpace(reply), err
}

// reset makes the connection fit for another owner, and reports whether it is.
func (c *conn) reset() bool { return c.isIdleAfter("rollback") }

// alive reports whether the server has not hung up meanwhile, at the price of a round trip.
func (c *conn) alive() bool { return c.isIdleAfter("status") }

func (c *conn) isIdleAfter(q string) bool {
	if c.SetDeadline(time.Now().Add(5*time.Second)) != nil {
		return false
	}
	reply, err := c.query(q)
	return err == nil && reply == "idle" && c.SetDeadline(time.Time{}) == nil
}

// Connections to a database are expensive, few, and the server's too: every one
// must be closed, none may be handed on with another owner's transaction open,
// and a collection of garbage is no reason to drop any. sync.Pool, which forgets
// its items at every other collection without closing them, must never hold
// them.
func ExamplePool() {
	db, err := startDatabase()
	if err != nil {
		fmt.Println(err)
		return
	}
	conns, err := pool.New(pool.Config[*conn]{
		New:      db.dial,
		Close:    func(c *conn) { c.Close() },
		Reset:    (*conn).reset,
		Check:    (*conn).alive,
		MaxOpen:  4,
		IdleTime: time.Minute,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ask := func(queries ...string) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		c, err := conns.Get(ctx) // waits for its turn while four are out
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, q := range queries {
			reply, err := c.query(q)
			fmt.Printf("%s: %s (%v)\n", q, reply, err)
		}
		conns.Put(c)
	}

	ask("begin")  // and forgets to end it
	ask("status") // the same connection, rolled back when it was put
	runtime.GC()
	runtime.GC()
	ask("status") // and still the same
	fmt.Println("made:", conns.Stats().Made)

	ask("shutdown") // reset fails, so the pool closes the connection
	fmt.Println("idle:", conns.Stats().Idle)
	ask("status")
	fmt.Println("made:", conns.Stats().Made)

	ask("expire") // the server hangs up on the idle connection
	ask("status") // Check notices, and another one is made
	if err := conns.Close(); err != nil {
		fmt.Println(err)
	}
	db.listener.Close()
	db.sessions.Wait() // returns once the server has seen the end of every connection
	s := conns.Stats()
	fmt.Println("made:", s.Made, "closed:", s.Closed)
	// Output:
	// begin: in a transaction (<nil>)
	// status: idle (<nil>)
	// status: idle (<nil>)
	// made: 1
	// shutdown:  (EOF)
	// idle: 0
	// status: idle (<nil>)
	// made: 2
	// expire: idle (<nil>)
	// status: idle (<nil>)
	// made: 3 closed: 3
}
