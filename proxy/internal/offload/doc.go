// Package offload serves the clients that leave their loop for a while, each on a goroutine: those whose TLS ends or begins in this process,
// until their session is joined and goes back to the loop, and those of PostgreSQL that ask to cancel a query.
package offload
