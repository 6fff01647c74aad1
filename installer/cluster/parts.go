package cluster

// Waits wait for the API server, nodes and pods.
type Waits struct{ client *Client }

// Waits returns the methods of this client for that subject.
func (c *Client) Waits() Waits { return Waits{c} }

// Tokens are bootstrap tokens and uploaded certificates: what joining nodes need.
type Tokens struct{ client *Client }

// Tokens returns the methods of this client for that subject.
func (c *Client) Tokens() Tokens { return Tokens{c} }

// NodeObjects are the Node objects, and what runs on them.
type NodeObjects struct{ client *Client }

// NodeObjects returns the methods of this client for that subject.
func (c *Client) NodeObjects() NodeObjects { return NodeObjects{c} }
