package redact

import (
	_ "embed"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// flagsText has the flags of the components of a cluster whose values are not secrets: the flags
// that Kubernetes, etcd and containerd define, without the few flags for a password or a token.
//
//go:embed flags.txt
var flagsText string

func set(names string) map[string]bool {
	m := map[string]bool{}
	for _, name := range strings.Fields(names) {
		m[name] = true
	}
	return m
}

var harmlessFlags = set(flagsText)

// separateValues are the flags of components whose value may be the next word.
var separateValues = set("conf config kubeconfig namespace id address")

// harmlessVariables are the environment variables whose values are not secrets.
var harmlessVariables = set(`KUBECONFIG PATH LANG LC_ALL TZ HOME USER SHELL TERM GOGC GOMAXPROCS GODEBUG GOMEMLIMIT GOTRACEBACK
	KUBERNETES_SERVICE_HOST KUBERNETES_SERVICE_PORT KUBERNETES_SERVICE_PORT_HTTPS KUBERNETES_PORT POD_NAME POD_NAMESPACE POD_IP POD_IPS NODE_NAME NODE_IP HOST_IP
	EVENT_QUEUE_DEPTH CONT_WHEN_CACHE_NOT_READY FLANNEL_NETWORK FLANNEL_IPV6_NETWORK FLANNEL_SUBNET FLANNEL_IPV6_SUBNET FLANNEL_MTU FLANNEL_IPMASQ
	NAME VERSION ID ID_LIKE PRETTY_NAME VERSION_ID VERSION_CODENAME DEBIAN_VERSION_FULL UBUNTU_CODENAME VARIANT VARIANT_ID PLATFORM_ID CPE_NAME ANSI_COLOR LOGO
	HOME_URL DOCUMENTATION_URL SUPPORT_URL BUG_REPORT_URL PRIVACY_POLICY_URL SUPPORT_END BUILD_ID IMAGE_ID IMAGE_VERSION
	NO_PROXY no_proxy ENABLE_CRI_SANDBOXES ETCD_NAME ETCD_DATA_DIR ETCD_UNSUPPORTED_ARCH NOTIFY_SOCKET CREDENTIALS_DIRECTORY`)

// proxyVariables have a URL, perhaps with a user and a password.
var proxyVariables = set("HTTP_PROXY HTTPS_PROXY FTP_PROXY ALL_PROXY http_proxy https_proxy ftp_proxy all_proxy")

// argumentVariables have arguments of the kubelet.
var argumentVariables = set("KUBELET_KUBEADM_ARGS KUBELET_EXTRA_ARGS KUBELET_CONFIG_ARGS KUBELET_KUBECONFIG_ARGS KUBELET_ARGS")

// kernelNames are arguments of the kernel that are not secrets.
var kernelNames = set(`BOOT_IMAGE root ro rw rootfstype rootflags rootwait rootdelay quiet splash console earlycon earlyprintk init initrd panic nomodeset mitigations
	systemd.unified_cgroup_hierarchy systemd.legacy_systemd_cgroup_controller systemd.unit systemd.show_status cgroup_enable cgroup_disable cgroup_memory cgroup_no_v1 swapaccount psi
	net.ifnames biosdevname ipv6.disable apparmor security selinux enforcing lsm audit fips crashkernel hugepages hugepagesz default_hugepagesz transparent_hugepage
	isolcpus nohz_full rcu_nocbs intel_iommu amd_iommu iommu numa_balancing loglevel printk.time vga nosmt maxcpus mem`)

// runtimeNames are names in the CRI's description of containerd whose values are not secrets.
var runtimeNames = set(`status conditions type reason message config runtimeHandlers features name golang lastCNILoadStatus cniconfig PluginDirs PluginConfDir PluginMaxConfNum Prefix Networks Config Name CNIVersion IFName
	sandboxImage pinnedImages sandbox snapshotter defaultRuntimeName runtimeType runtimes SystemdCgroup BinaryName binDir binDirs confDir maxConfNum systemdCgroup cgroupDriver enableSelinux disableApparmor enableCDI
	containerdRootDir containerdEndpoint rootDir stateDir configPath netnsMountsUnderStateDir enableUnprivilegedPorts enableUnprivilegedICMP recursive_read_only_mounts user_namespaces`)

// unitNames are directives of systemd whose values are not secrets.
var unitNames = set(`Documentation After Before Wants Requires Requisite BindsTo PartOf Conflicts OnFailure OnSuccess WantedBy RequiredBy Also Alias DefaultDependencies
	RequiresMountsFor ConditionPathExists ConditionPathIsDirectory ConditionFileIsExecutable AssertPathExists StartLimitInterval StartLimitIntervalSec StartLimitBurst
	Type Restart RestartSec RestartSteps RestartMaxDelaySec RemainAfterExit KillMode KillSignal SendSIGKILL TimeoutSec TimeoutStartSec TimeoutStopSec WatchdogSec NotifyAccess PIDFile SuccessExitStatus
	Delegate Slice CPUAccounting MemoryAccounting IOAccounting TasksAccounting TasksMax CPUWeight MemoryMax MemoryHigh MemoryMin MemoryLow OOMScoreAdjust OOMPolicy Nice
	LimitNOFILE LimitNPROC LimitCORE LimitMEMLOCK User Group SupplementaryGroups DynamicUser WorkingDirectory RootDirectory EnvironmentFile StandardOutput StandardError SyslogIdentifier
	RuntimeDirectory StateDirectory CacheDirectory LogsDirectory ConfigurationDirectory RuntimeDirectoryMode UMask ProtectSystem ProtectHome PrivateTmp PrivateDevices PrivateNetwork ProtectKernelTunables
	ProtectKernelModules ProtectKernelLogs ProtectControlGroups ProtectClock ProtectHostname ProtectProc NoNewPrivileges CapabilityBoundingSet AmbientCapabilities SystemCallFilter SystemCallArchitectures
	SystemCallErrorNumber RestrictAddressFamilies RestrictNamespaces RestrictRealtime RestrictSUIDSGID LockPersonality MemoryDenyWriteExecute ReadWritePaths ReadOnlyPaths InaccessiblePaths BindPaths
	BindReadOnlyPaths IPAddressAllow IPAddressDeny DeviceAllow DevicePolicy OnCalendar OnBootSec OnUnitActiveSec RandomizedDelaySec Persistent Unit AccuracySec ListenStream SocketMode
	RefuseManualStop RefuseManualStart IgnoreOnIsolate StopWhenUnneeded`)

// containerdNames are names in containerd's configuration whose values are not secrets.
var containerdNames = set(`version root state temp oom_score imports disabled_plugins required_plugins plugin_dir address uid gid level format max_recv_message_size max_send_message_size
	no_prometheus path timeout enable_cdi cdi_spec_dirs sandbox sandbox_image pinned_images snapshotter default_runtime_name runtime_type runtime_path runtime_root base_runtime_spec privileged_without_host_devices
	cni_conf_dir cni_max_conf_num bin_dir bin_dirs conf_dir conf_template max_conf_num ip_pref setup_serially SystemdCgroup BinaryName Root ShimCgroup NoPivotRoot NoNewKeyring CriuPath config_path
	enable_selinux selinux_category_range max_container_log_line_size disable_apparmor restrict_oom_score_adj disable_proc_mount unset_seccomp_profile tolerate_missing_hugetlb_controller
	disable_hugetlb_controller device_ownership_from_security_context ignore_image_defined_volumes netns_mounts_under_state_dir enable_unprivileged_ports enable_unprivileged_icmp drain_exec_sync_io_timeout
	ignore_deprecation_warnings max_concurrent_downloads max_concurrent_unpacks concurrent_layer_fetch_buffer image_pull_progress_timeout image_pull_with_sync_fs stats_collect_period disable_tcp_service
	stream_server_address stream_server_port stream_idle_timeout enable_tls_streaming systemd_cgroup disable_cgroup disable_snapshot_annotations discard_unpacked_layers sandboxer io_type
	root_path upperdir_label sync_remove mount_options async_remove slow_chown pool_name base_image_size default platforms differ unpack_config sched_core shim runtime no_shim shim_debug content_sharing_policy
	pause_threshold deletion_threshold mutation_threshold schedule_delay startup_delay rdt_config_file exit_signal exit_signal_grace_period
	server capabilities skip_verify ca client override_path dial_timeout insecure_skip_verify ca_file cert_file key_file endpoint`)

// cniNames are names in CNI's and flannel's configuration whose values are not secrets.
var cniNames = set(`cniVersion cniVersions name type plugins disableCheck disableGC bridge isGateway isDefaultGateway forceAddress ipMasq ipMasqBackend mtu hairpinMode promiscMode vlan macspoofchk
	delegate capabilities portMappings bandwidth snat ipam subnet subnets ranges rangeStart rangeEnd routes dst gw gateway dataDir resolvConf dns nameservers search
	log_level log_file_path datastore_type nodename policy kubeconfig kubernetes container_settings allow_ip_forwarding assign_ipv4 assign_ipv6 conf sysctl
	Network IPv6Network EnableIPv4 EnableIPv6 EnableNFTables SubnetLen SubnetMin SubnetMax IPv6SubnetLen Backend Type VNI Port GBP DirectRouting MTU MacPrefix VtepMAC VtepMac PublicIP`)

// recordNames are names in the record of the addresses of nodes, which a plan shows to whoever confirms it.
var recordNames = set("uid addresses")

// neverBelow are names of settings below which any name may have a secret.
var neverBelow = set("header headers env envs environ environment vars variables args options login registry_auth cookies data")

// corefileNames are plugins and options of CoreDNS whose arguments are not secrets.
var corefileNames = set(`errors health ready kubernetes prometheus forward cache loop reload loadbalance hosts log debug any bind bufsize cancel chaos class consolidate lameduck pods fallthrough ttl
	endpoint_pod_names namespaces labels kubeconfig noendpoints ignore max_fails expire policy prefer_udp force_tcp max_concurrent health_check tls_servername except success denial prefetch serve_stale
	servfail disable no_reverse jitter round_robin rewrite template acl file root autopath header whoami rcode stop upstream view local minimal nsid exact prefix suffix auto`)

// corefileWords are arguments in the Corefile that are not secrets.
var corefileWords = set(`insecure verified disabled error denial all success force random first sequential round_robin weighted_round_robin least_loaded internal IN CH HS ANY A AAAA CNAME MX NS PTR SOA SRV TXT
	name type class ttl exact prefix suffix substring regex continue stop answer auto noerror nxdomain servfail serve_stale NOERROR NXDOMAIN SERVFAIL allow block filter drop net`)

// endpointWords are the words in paths that probes ask for.
var endpointWords = set(`health healthz healthy healthcheck check checks live livez alive liveness ready readyz readiness startup startupz started status ping pong metrics version api apis up ok probe probes actuator info
	index html json php default system state server stats root path test hello apiz v1 v2 v3 configz token`)

// harmlessAnnotations are the annotations that Kubernetes' own components set.
var harmlessAnnotations = set(`prometheus.io/port prometheus.io/scrape kubernetes.io/config.hash kubernetes.io/config.mirror kubernetes.io/config.seen kubernetes.io/config.source node.alpha.kubernetes.io/ttl
	volumes.kubernetes.io/controller-managed-attach-detach deployment.kubernetes.io/revision deployment.kubernetes.io/desired-replicas deployment.kubernetes.io/max-replicas
	deprecated.daemonset.template.generation control-plane.alpha.kubernetes.io/leader endpoints.kubernetes.io/last-change-trigger-time kubectl.kubernetes.io/restartedAt
	storageclass.kubernetes.io/is-default-class pv.kubernetes.io/provisioned-by pv.kubernetes.io/bound-by-controller scheduler.alpha.kubernetes.io/critical-pod
	kubernetes.io/description apf.kubernetes.io/autoupdate-spec rbac.authorization.kubernetes.io/autoupdate`)

// publicBlocks are the kinds of PEM blocks that are not secrets.
var publicBlocks = []string{"CERTIFICATE", "CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST", "TRUSTED CERTIFICATE", "PUBLIC KEY", "RSA PUBLIC KEY", "X509 CRL"}

// typeRules redact values of some types.
var typeRules map[string]func(any) any

// quotesOutput are the reasons of events whose message quotes a command in a pod.
var quotesOutput = set("Unhealthy ProbeWarning FailedPostStartHook FailedPreStopHook")

// fieldRules redact fields of Kubernetes' types by their names.
var fieldRules map[string]func(any) any

func init() { // they refer to functions that refer to them
	typeRules = map[string]func(any) any{"EnvVar": variable, "ExecEnvVar": variable, "HTTPHeader": pair(nil), "HTTPGetAction": httpGet, "Args": flagList,
		"Event": event, "ContainerStateTerminated": fieldsWithout[corev1.ContainerStateTerminated]("message")}
	fieldRules = map[string]func(any) any{
		"command": argumentList(true), "args": argumentList(false), "annotations": annotations, "data": data, "binaryData": unknown, "stringData": unknown, "managedFields": unknown,
		"mountOptions": mountOptions, "labels": plainMap, "matchLabels": plainMap, "nodeSelector": plainMap, "selector": selector, "unknown": plainMap,
		"evictionHard": plainMap, "evictionSoft": plainMap, "evictionSoftGracePeriod": plainMap, "evictionMinimumReclaim": plainMap, "systemReserved": plainMap, "kubeReserved": plainMap,
	}
}

// secretName matches the name of a value that is a secret in a structure: DB_PASS, apiKey, bootstrap-token; not token-file.
var secretName = regexp.MustCompile(`(?i)(?:pass(?:wd|word|phrase|code)?|pwd|secret|token|cookie|credential|auth|(?:api|access|private|secret|signing|encryption|certificate|master|client|shared)[-_.]?key)s?[0-9]*$`)
