// Package offload serves the clients that leave their loop for a while, each on a goroutine. Clients with TLS that ends or begins in this
// process stay until their session is joined and goes back to the loop. Clients of PostgreSQL come to cancel a query.
package offload
