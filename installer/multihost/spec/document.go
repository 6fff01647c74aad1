package spec

// Values of the fields apiVersion and kind, and the command that prints an example.
const (
	apiVersion = "airlift/v1"
	kind       = "Cluster"
	example    = "./install cluster example"
)

// A document is the first document of cluster.yaml as it is written; kubeadm's documents may follow it. The tag is names
// the rule of a text, or of each text in a list or a mapping; the tag names, that of the names in a mapping. The tag need marks what
// the JSON schema requires.
type document struct {
	Name     string    `json:"name" is:"clusterName" need:"true"`
	SSH      sharedSSH `json:"ssh"`
	Hosts    []host    `json:"hosts" need:"true"`
	Groups   []group   `json:"groups"`
	Endpoint endpoint  `json:"endpoint"`
	Registry *bool     `json:"embeddedRegistry"`
	Kubeadm  []string  `json:"kubeadm" is:"kubeadmFile" one:"true"`
	Roll     roll      `json:"roll"`

	Certificates *certificates `json:"certificates"`
	Backups      *backups      `json:"backups"`
	Registries   *registries   `json:"registries"`

	EncryptSecrets *bool  `json:"encryptSecrets"`
	Profile        string `json:"profile" is:"profile"`
}

type registries struct {
	Mirrors map[string][]string `json:"mirrors" names:"registryHost" is:"mirrorURL" one:"true"`
	CA      []string            `json:"ca" is:"registryCA" one:"true"`
	Auth    string              `json:"auth" is:"registryAuth"`
}

type certificates struct {
	AutoRenew bool   `json:"autoRenew" need:"true"`
	TimeZone  string `json:"timeZone" is:"timeZone"`
}

type backups struct {
	Enabled    *bool    `json:"enabled"`
	Directory  string   `json:"directory" is:"hostDirectory"`
	Target     string   `json:"target" is:"backupTarget"`
	Config     string   `json:"targetConfig" is:"targetConfig"`
	Every      string   `json:"every" is:"interval"`
	Keep       int      `json:"keep" is:"count"`
	TimeZone   string   `json:"timeZone" is:"timeZone"`
	Recipients []string `json:"recipients" is:"recipient" one:"true"`
}

type host struct {
	Name    string   `json:"name" is:"nodeNames" need:"true"`
	Role    string   `json:"role" is:"role" need:"true"`
	Group   string   `json:"group" is:"groupName"`
	Address string   `json:"address" is:"sshAddresses"` // short for ssh.address
	NodeIP  []string `json:"nodeIP" is:"ips" one:"true"`
	SSH     hostSSH  `json:"ssh"`
	Match   *Match   `json:"match"`
	NodeValues

	at string // hosts[2]
}

type group struct {
	Name string    `json:"name" is:"groupName" need:"true"`
	SSH  sharedSSH `json:"ssh"`
	NodeValues
	Roll groupRoll `json:"roll"`

	at string // groups[2]
}

type login struct {
	User    string `json:"user" is:"userName"`
	Port    int    `json:"port" is:"port"`
	KeyPath string `json:"keyPath" is:"keyFile"`
}

// sharedSSH is what several hosts can have in common.
type sharedSSH struct {
	login
	Jump    []jump   `json:"jump"`
	OpenSSH *bool    `json:"openSSH"`
	Options []string `json:"options" is:"sshArgument"`
}

type hostSSH struct {
	Address string `json:"address" is:"sshAddresses"`
	HostKey string `json:"hostKey" is:"hostKey"`
	sharedSSH
}

// A jump is a host on the way to others. No default applies to it but the port and the user.
type jump struct {
	Address string `json:"address" is:"sshAddress" need:"true"`
	HostKey string `json:"hostKey" is:"hostKey"`
	login
}

type endpoint struct {
	VIP      []string `json:"vip" is:"ip" one:"true"`
	Balancer bool     `json:"balancer"`
	Address  string   `json:"address" is:"apiEndpoint"`
}

type roll struct {
	Order        []string `json:"order" is:"groupName"`
	Drain        *bool    `json:"drain"`
	DrainTimeout string   `json:"drainTimeout" is:"duration" number:"true"`
	Undo         bool     `json:"undo"`
}

type groupRoll struct {
	MaxUnavailable string   `json:"maxUnavailable" is:"limit" number:"true"`
	Soak           string   `json:"soak" is:"duration" number:"true"`
	Pause          bool     `json:"pause"`
	Check          []string `json:"check" is:"argument"`
	Window         *window  `json:"window"`
}

type window struct {
	Days      []string `json:"days" is:"day"`
	StartTime string   `json:"startTime" is:"clock"`
	EndTime   string   `json:"endTime" is:"clock"`
	TimeZone  string   `json:"timeZone" is:"timeZone"`
}
