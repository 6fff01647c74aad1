package spec

// Values of the fields apiVersion and kind.
const (
	apiVersion = "airlift/v1"
	kind       = "Cluster"
)

// A document is the first document of cluster.yaml as it is written; kubeadm's documents may follow it. The tag is names
// the rule of a text, or of each text in a list. With the tag one, a single text may be written instead of a list.
type document struct {
	APIVersion string    `yaml:"apiVersion"`
	Kind       string    `yaml:"kind"`
	Name       string    `yaml:"name" is:"clusterName"`
	SSH        sharedSSH `yaml:"ssh"`
	Hosts      []host    `yaml:"hosts"`
	Groups     []group   `yaml:"groups"`
	Endpoint   endpoint  `yaml:"endpoint"`
	Registry   *bool     `yaml:"embeddedRegistry"`
	Kubeadm    []string  `yaml:"kubeadm" is:"kubeadmFile" one:"true"`
	Roll       roll      `yaml:"roll"`
}

type host struct {
	Name    string   `yaml:"name" is:"nodeName"`
	Role    string   `yaml:"role" is:"role"`
	Group   string   `yaml:"group" is:"groupName"`
	Address string   `yaml:"address" is:"sshAddress"` // short for ssh.address
	NodeIP  []string `yaml:"nodeIP" is:"ip" one:"true"`
	SSH     hostSSH  `yaml:"ssh"`
	nodeValues
}

type group struct {
	Name string    `yaml:"name" is:"groupName"`
	SSH  sharedSSH `yaml:"ssh"`
	nodeValues
	Roll groupRoll `yaml:"roll"`

	at string // groups[2]
}

// nodeValues are values of a node, or of all nodes of a group.
type nodeValues struct {
	Labels  map[string]string `yaml:"labels" is:"labelValue"`
	Taints  []string          `yaml:"taints" is:"taint"`
	Patches string            `yaml:"patches" is:"patches"`
}

type login struct {
	User    string `yaml:"user" is:"userName"`
	Port    int    `yaml:"port"`
	KeyPath string `yaml:"keyPath" is:"keyFile"`
}

// sharedSSH is what several hosts can have in common.
type sharedSSH struct {
	login
	Jump    []jump   `yaml:"jump"`
	OpenSSH *bool    `yaml:"openSSH"`
	Options []string `yaml:"options" is:"sshArgument"`
}

type hostSSH struct {
	Address string `yaml:"address" is:"sshAddress"`
	HostKey string `yaml:"hostKey" is:"hostKey"`
	sharedSSH
}

// A jump is a host on the way to others. No default applies to it but the port and the user.
type jump struct {
	Address string `yaml:"address" is:"sshAddress"`
	HostKey string `yaml:"hostKey" is:"hostKey"`
	login
}

type endpoint struct {
	VIP      []string `yaml:"vip" is:"ip" one:"true"`
	Balancer bool     `yaml:"balancer"`
	Address  string   `yaml:"address" is:"apiEndpoint"`
}

type roll struct {
	Order        []string `yaml:"order" is:"groupName"`
	Drain        *bool    `yaml:"drain"`
	DrainTimeout string   `yaml:"drainTimeout" is:"duration"`
	Undo         bool     `yaml:"undo"`
}

type groupRoll struct {
	MaxUnavailable string   `yaml:"maxUnavailable" is:"limit"`
	Soak           string   `yaml:"soak" is:"duration"`
	Pause          bool     `yaml:"pause"`
	Check          []string `yaml:"check" is:"argument"`
	Window         *window  `yaml:"window"`
}

type window struct {
	Days      []string `yaml:"days" is:"day"`
	StartTime string   `yaml:"startTime" is:"clock"`
	EndTime   string   `yaml:"endTime" is:"clock"`
	TimeZone  string   `yaml:"timeZone" is:"timeZone"`
}
