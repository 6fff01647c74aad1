package service

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
)

// A kind of connections has room of its own: whoever is not known takes nothing from nodes.
type kind int

const (
	arriving    kind = iota // it has not sent a whole ClientHello, or waits for its turn
	handshaking             // who it is from is not known yet
	stranger                // its client has no certificate of a kubelet, and no token that is valid
	identified              // a node, or a joining host whose token was valid
	kinds
)

// room is how many connections of each kind there are at most. For one more, the oldest one of the owner with the most is closed, so
// that a flood closes its own connections. Of identified ones, it is the oldest one without a request.
//
// A pod has the address of its node, so until the end of a handshake, the kubelet may share an owner with a flood: its handshake
// has the time in which a pod opens as many connections as there is room for.
//
// A connection needs up to 12 KiB of memory while it arrives, 40 KiB in and after a handshake, and 80 KiB more with a request:
// less than 90 MiB with maxRequests, and 128 MiB for the decoder, below GOMEMLIMIT in the unit. Their 2176 files, and one for each
// of maxRequests, are below LimitNOFILE.
var room = [kinds]int{arriving: 1024, handshaking: 512, stranger: 128, identified: 512}

// perNode is how many identified connections one owner has at most: those with a request stay. A node pulls several layers at
// once, with a connection for each.
const perNode = 48

// A connections is a listener for TLS. It ends handshakes before it returns a connection. Beyond room, it closes another
// connection for a new one, or the new one if all others have a request of a known reader.
type connections struct {
	net.Listener
	config *tls.Config
	ready  chan net.Conn
	ended  context.Context // its cause is the error of the listener
	end    context.CancelCauseFunc
	tasks  sync.WaitGroup
	// turn is for the computing in handshakes, which is a millisecond with RSA: one at a time for all addresses that are not of nodes.
	// So a flood of ClientHellos delays neither nodes nor answers.
	turn chan struct{}

	mu    sync.Mutex
	open  [kinds]crowd
	nodes map[string]client // by address
}

// A client is a node at the address from which it has identified itself last.
type client struct {
	node string
	turn chan struct{} // for handshakes with this address: pods of one node do not delay other nodes
}

// An owner of connections is a node, an address or a network.
type owner struct {
	name   string
	isNode bool // or an address of a node
}

// A crowd has the connections of a kind.
type crowd struct {
	room    int
	perNode int
	list    list.List // the oldest one first
	owned   map[owner]int
	weights map[int]int // how many owners have which weight
	most    int         // the highest weight
}

// weight is how many connections an owner has. A node has perNode before that counts: a flood from many addresses, with one
// connection each, closes none of its connections.
func (c *crowd) weight(o owner) int {
	if o.isNode {
		return c.owned[o] - c.perNode
	}
	return c.owned[o]
}

// count adds n to the connections of an owner.
func (c *crowd) count(o owner, n int) {
	if c.owned[o] > 0 {
		c.weights[c.weight(o)]--
	}
	if c.owned[o] += n; c.owned[o] > 0 {
		c.weights[c.weight(o)]++
		c.most = max(c.most, c.weight(o))
	} else {
		delete(c.owned, o)
	}
	for c.most > -c.perNode && c.weights[c.most] == 0 {
		c.most--
	}
}

// A connection is one of TCP.
type connection struct {
	net.Conn
	address string
	network string // of address
	node    string // the name in its certificate of a kubelet, "" if it has none
	turn    chan struct{}
	inTurn  bool
	greeted bool // its ClientHello is complete, and the handshake has not ended

	// The rest belongs to the mutex of connections.
	kind  kind
	owner owner
	place *list.Element // in the list of its kind, nil after it was closed
	busy  bool          // it has a request
}

// Write implements net.Conn.
func (c *connection) Write(b []byte) (int, error) {
	c.pass()
	n, err := c.Conn.Write(b)
	c.take(err)
	return n, err
}

// Read implements net.Conn.
func (c *connection) Read(b []byte) (int, error) {
	c.pass()
	n, err := c.Conn.Read(b)
	c.take(err)
	return n, err
}

// take begins the turn again in a handshake. What else a client sends in it costs the server as much as the ClientHello: a second one after
// a HelloRetryRequest, a certificate, the key exchange of TLS 1.2; and it may have been sent with the first message.
func (c *connection) take(err error) {
	if c.greeted && err == nil {
		c.turn <- struct{}{}
		c.inTurn = true
	}
}

// pass ends the turn of the connection: a handshake computes before it writes, and then waits for the client.
func (c *connection) pass() {
	if c.inTurn {
		<-c.turn
		c.inTurn = false
	}
}

// newConnections begins to accept connections.
func newConnections(l net.Listener, configFor func(*tls.ClientHelloInfo) (*tls.Config, error)) *connections {
	c := &connections{
		Listener: l, ready: make(chan net.Conn), turn: make(chan struct{}, 1), nodes: map[string]client{},
	}
	c.ended, c.end = context.WithCancelCause(context.Background())
	c.config = &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		conn := hello.Conn.(*connection)
		conn.turn <- struct{}{}
		conn.inTurn, conn.greeted = true, true
		if !c.admit(conn, handshaking) {
			return nil, net.ErrClosed
		}
		return configFor(hello)
	}}
	for k := range c.open {
		c.open[k] = crowd{room: room[k], perNode: perNode, owned: map[owner]int{}, weights: map[int]int{}}
	}
	if l != nil {
		c.tasks.Go(c.run)
	}
	return c
}

// outOfFiles is how long to wait after an accept that failed with one of lacks.
const outOfFiles = 50 * time.Millisecond

var lacks = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}

// run begins handshakes until the listener is closed.
func (c *connections) run() {
	for {
		raw, err := c.Listener.Accept()
		if slices.ContainsFunc(lacks, func(lack error) bool { return errors.Is(err, lack) }) {
			time.Sleep(outOfFiles)
			continue
		}
		if err != nil {
			c.end(err)
			return
		}
		conn := &connection{Conn: raw}
		conn.address, conn.network = addressOf(raw.RemoteAddr().String())
		if c.admit(conn, arriving) {
			c.tasks.Go(func() { c.handshake(conn) })
		}
	}
}

// handshake ends the handshake of a connection, and passes it on.
func (c *connections) handshake(conn *connection) {
	secure := tls.Server(conn, c.config)
	_ = conn.SetDeadline(time.Now().Add(headerTimeout))
	err := secure.Handshake()
	conn.pass()
	conn.greeted = false
	if err != nil {
		c.forget(conn)
		return
	}
	_ = conn.SetDeadline(time.Time{})
	k := stranger
	if conn.node = nodeName(secure.ConnectionState()); conn.node != "" {
		k = identified
	}
	if !c.admit(conn, k) {
		return
	}
	select {
	case c.ready <- secure:
	case <-c.ended.Done():
		c.forget(conn)
	}
}

// Accept returns a connection after its handshake.
func (c *connections) Accept() (net.Conn, error) {
	select {
	case conn := <-c.ready:
		return conn, nil
	case <-c.ended.Done():
		return nil, context.Cause(c.ended)
	}
}

// Close closes all connections, too.
func (c *connections) Close() error {
	err := c.Listener.Close()
	<-c.ended.Done() // no other connection comes
	c.mu.Lock()
	var open []*connection
	for k := range c.open {
		for e := c.open[k].list.Front(); e != nil; e = e.Next() {
			open = append(open, e.Value.(*connection))
		}
	}
	c.mu.Unlock()
	for _, conn := range open {
		conn.Conn.Close()
	}
	c.tasks.Wait()
	return err
}

// admit counts a connection as one of a kind, and makes room for it. It reports whether the connection is open.
func (c *connections) admit(conn *connection, k kind) bool {
	c.mu.Lock()
	if k != arriving && conn.place == nil { // it was closed for another one
		c.mu.Unlock()
		return false
	}
	if k == identified && conn.node != "" && c.nodes[conn.address].node != conn.node {
		maps.DeleteFunc(c.nodes, func(_ string, former client) bool { return former.node == conn.node })
		c.nodes[conn.address] = client{conn.node, make(chan struct{}, 1)}
	}
	c.remove(conn)
	conn.kind, conn.owner = k, c.ownerOf(conn, k)
	if k == arriving {
		conn.turn = c.turn
		if conn.owner.isNode {
			conn.turn = c.nodes[conn.address].turn
		}
	}
	conn.place = c.open[k].list.PushBack(conn)
	c.open[k].count(conn.owner, 1)
	victim := c.victim(conn)
	if victim != nil {
		c.remove(victim)
	}
	c.mu.Unlock()
	if victim != nil {
		drop(victim)
	}
	return victim != conn
}

// ownerOf returns the owner of a connection that is or becomes of a kind: a node by its name, everybody else by address. IPv6 has
// more addresses in a network than there are connections, so a network is one owner, except for addresses of nodes.
func (c *connections) ownerOf(conn *connection, k kind) owner {
	_, isNode := c.nodes[conn.address]
	switch {
	case conn.node != "":
		return owner{conn.node, true}
	case k == identified || isNode:
		return owner{conn.address, isNode}
	}
	return owner{conn.network, false}
}

// victim returns the connection that is closed after a new one was counted, nil if there is room for all.
func (c *connections) victim(added *connection) *connection {
	k := added.kind
	crowd := &c.open[k]
	full := k == identified && crowd.owned[added.owner] > crowd.perNode
	if !full && crowd.list.Len() <= crowd.room {
		return nil
	}
	for e := crowd.list.Front(); e != nil; e = e.Next() {
		conn := e.Value.(*connection)
		if k != identified && crowd.weight(conn.owner) == crowd.most || k == identified && !conn.busy && (!full || conn.owner == added.owner) {
			return conn
		}
	}
	return added
}

// remove counts a connection no longer.
func (c *connections) remove(conn *connection) {
	if conn.place == nil {
		return
	}
	c.open[conn.kind].list.Remove(conn.place)
	c.open[conn.kind].count(conn.owner, -1)
	conn.place = nil
}

// drop closes a connection that is no longer counted, without the end of TLS, which would wait for a client that does not read. The
// kernel still sends what it has of the last answer. Without an answer, the kernel forgets the connection at once. It waits for
// whoever reads from the connection, so the caller has no lock.
func drop(conn *connection) {
	if t, ok := conn.Conn.(*net.TCPConn); ok && conn.kind <= handshaking {
		_ = t.SetLinger(0)
	}
	conn.Conn.Close()
}

// forget closes a connection that has ended.
func (c *connections) forget(conn *connection) {
	c.mu.Lock()
	c.remove(conn)
	c.mu.Unlock()
	conn.Conn.Close()
}

// identify counts the connection of a request, whose token is valid, as known.
func (c *connections) identify(r *http.Request) {
	if !c.isIdentified(r) {
		c.admit(connectionOf(r), identified)
	}
}

// isIdentified reports whether the connection of a request is known.
func (c *connections) isIdentified(r *http.Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return connectionOf(r).kind == identified
}

// connectionKey is the key of the connection in the context of its requests.
type connectionKey struct{}

// remember is the hook ConnContext of the server.
func (c *connections) remember(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, conn.(*tls.Conn).NetConn())
}

func connectionOf(r *http.Request) *connection {
	return r.Context().Value(connectionKey{}).(*connection)
}

// addressOf returns the address of "ADDRESS:PORT", and its network of 64 bits. For IPv4, network is the address.
func addressOf(remote string) (address, network string) {
	port, _ := netip.ParseAddrPort(remote)
	a := port.Addr().Unmap()
	if a.Is6() {
		prefix, _ := a.Prefix(64)
		return a.String(), prefix.String()
	}
	return a.String(), a.String()
}

// follow is the hook ConnState of the server.
func (c *connections) follow(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	is := conn.(*tls.Conn).NetConn().(*connection)
	switch {
	case is.place == nil:
	case state == http.StateClosed || state == http.StateHijacked:
		c.remove(is)
	case state == http.StateActive || state == http.StateIdle:
		is.busy = state == http.StateActive
		c.open[is.kind].list.MoveToBack(is.place)
	}
}

func (c *connections) count() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.open {
		n += c.open[k].list.Len()
	}
	return n
}
