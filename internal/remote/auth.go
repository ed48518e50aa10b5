package remote

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
)

// The greeting: each end sends the magic, whether it has a token, and a nonce; then a
// proof that it knows the token. The token itself is never sent. The server proves it
// first, so that a client with a token tells a stranger nothing.
const (
	magic    = "CVREMOT1"
	nonceLen = 32
	proofLen = sha256.Size
	greeting = len(magic) + 1 + nonceLen
)

// ErrToken means that the other end does not know the token, or wants one.
var ErrToken = errors.New("the tokens differ")

// errForeign is a peer that speaks another protocol.
var errForeign = errors.New("no greeting of culvert")

// greet runs the greeting. An empty token needs none of the other end.
func greet(conn io.ReadWriter, token []byte, server bool) error {
	var own, other [greeting]byte
	copy(own[:], magic)
	if len(token) > 0 {
		own[len(magic)] = 1
	}
	if _, err := rand.Read(own[len(magic)+1:]); err != nil {
		return err
	}
	if _, err := conn.Write(own[:]); err != nil {
		return err
	}
	if n, err := io.ReadFull(conn, other[:]); err != nil {
		return fmt.Errorf("greeting after %d bytes: %w", n, err)
	}
	if string(other[:len(magic)]) != magic {
		return fmt.Errorf("%w: it begins with %q", errForeign, other[:len(magic)])
	}
	if own[len(magic)] != other[len(magic)] {
		return fmt.Errorf("%w: one end has a token and the other has none (fix: give both the same --token-file)", ErrToken)
	}
	if len(token) == 0 {
		return nil
	}
	return prove(conn, token, own, other, server)
}

// prove exchanges proofs of the token, the server's first.
func prove(conn io.ReadWriter, token []byte, own, other [greeting]byte, server bool) error {
	client, serves := own, other
	if server {
		client, serves = other, own
	}
	send := func(role string) error {
		_, err := conn.Write(proof(token, role, client, serves))
		return err
	}
	check := func(role string) error {
		var got [proofLen]byte
		if _, err := io.ReadFull(conn, got[:]); err != nil {
			return fmt.Errorf("%w: the other end closed the connection (%w)", ErrToken, err)
		}
		if !hmac.Equal(got[:], proof(token, role, client, serves)) {
			return ErrToken
		}
		return nil
	}
	if server {
		return errors.Join(send("server"), check("client"))
	}
	if err := check("server"); err != nil {
		return err
	}
	return send("client")
}

func proof(token []byte, role string, client, server [greeting]byte) []byte {
	h := hmac.New(sha256.New, token)
	h.Write([]byte("culvert remote " + role + "\n"))
	h.Write(client[:])
	h.Write(server[:])
	return h.Sum(nil)
}
