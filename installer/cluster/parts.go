package cluster

// NodeObjects are the Node objects, and what runs on them.
type NodeObjects struct{ client *Client }

// NodeObjects returns the methods of this client for that subject.
func (c *Client) NodeObjects() NodeObjects { return NodeObjects{c} }
