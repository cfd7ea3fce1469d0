package admin

import "net/http"

// RoundTrip implements [http.RoundTripper]: it sends a request to the server at the client's address with the
// client's credentials, whatever host and credentials it names. The response is as the server sends it, and may be
// a stream.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host, r.Host = c.scheme, c.host, c.host
	r.Header.Del("Authorization")
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Transport.RoundTrip(r)
	if err != nil {
		return nil, c.explain(r.Context(), err)
	}
	return answer, nil
}
