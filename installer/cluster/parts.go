package cluster

// Rotations are the state of a rotation of the CAs in the cluster, and what trusts its CAs.
type Rotations struct{ client *Client }

// Rotations returns the methods of this client for that subject.
func (c *Client) Rotations() Rotations { return Rotations{c} }

// Waits wait for the API server, nodes and pods.
type Waits struct{ client *Client }

// Waits returns the methods of this client for that subject.
func (c *Client) Waits() Waits { return Waits{c} }

// Tokens are bootstrap tokens and uploaded certificates: what joining nodes need.
type Tokens struct{ client *Client }

// Tokens returns the methods of this client for that subject.
func (c *Client) Tokens() Tokens { return Tokens{c} }

// Rollouts are the workloads of the components, and what kube-proxy has made of the Services.
type Rollouts struct{ client *Client }

// Rollouts returns the methods of this client for that subject.
func (c *Client) Rollouts() Rollouts { return Rollouts{c} }

// NodeObjects are the Node objects, and what runs on them.
type NodeObjects struct{ client *Client }

// NodeObjects returns the methods of this client for that subject.
func (c *Client) NodeObjects() NodeObjects { return NodeObjects{c} }

// Upgrades are what an upgrade reads and replaces in the cluster.
type Upgrades struct{ client *Client }

// Upgrades returns the methods of this client for that subject.
func (c *Client) Upgrades() Upgrades { return Upgrades{c} }

// podProblems explain why pods are not ready.
type podProblems struct{ client *Client }

// podProblems returns the methods of this client for that subject.
func (c *Client) podProblems() podProblems { return podProblems{c} }
