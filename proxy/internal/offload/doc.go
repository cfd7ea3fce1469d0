// Package offload serves clients that leave their loop for a while, each on a goroutine. If TLS ends or begins
// in this process, a client stays here until its session is joined, and then goes back to its loop. A client of
// PostgreSQL also comes here to cancel a query.
package offload
