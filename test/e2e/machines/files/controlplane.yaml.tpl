# The control plane of a shoot, as far as machines need one: what gardenlet deploys, without what makes it highly available,
# observed and reachable through a gateway.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: etcd-main
spec:
  selector:
    matchLabels: {app: etcd}
  template:
    metadata:
      labels: {app: etcd}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 1
      containers:
      - name: etcd
        image: landscape/etcd:{{.EtcdVersion}}
        command:
        - /etcd
        - --data-dir=/data/etcd
        - --log-level=warn
        - --unsafe-no-fsync
        - --listen-client-urls=http://0.0.0.0:2379
        - --advertise-client-urls=http://etcd-main-client:2379
        readinessProbe:
          httpGet: {path: /health, port: 2379}
          periodSeconds: 1
        volumeMounts:
        - {name: data, mountPath: /data}
      volumes:
      - name: data
        emptyDir: {}
---
apiVersion: v1
kind: Service
metadata:
  name: etcd-main-client
spec:
  selector: {app: etcd}
  ports:
  - port: 2379
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: kube-apiserver
spec:
  selector:
    matchLabels: {app: kubernetes, role: apiserver}
  template:
    metadata:
      labels: {app: kubernetes, role: apiserver}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 1
      containers:
      - name: kube-apiserver
        image: landscape/kube-apiserver:{{.KubernetesVersion}}
        command:
        - /usr/local/bin/kube-apiserver
        - --etcd-servers=http://etcd-main-client:2379
        - --secure-port=443
        - --advertise-address={{.Address}}
        - --service-cluster-ip-range={{.ServiceCIDR}}
        - --authorization-mode=Node,RBAC
        - --allow-privileged=true
        - --enable-bootstrap-token-auth=true
        - --client-ca-file=/secrets/{{.Secrets.CA}}/ca.crt
        - --tls-cert-file=/secrets/{{.Secrets.Server}}/tls.crt
        - --tls-private-key-file=/secrets/{{.Secrets.Server}}/tls.key
        - --kubelet-client-certificate=/secrets/{{.Secrets.KubeletClient}}/tls.crt
        - --kubelet-client-key=/secrets/{{.Secrets.KubeletClient}}/tls.key
        - --kubelet-preferred-address-types=InternalIP
        - --service-account-issuer=https://{{.Address}}
        - --api-audiences=kubernetes,gardener
        - --service-account-key-file=/secrets/{{.Secrets.ServiceAccountKey}}/id_rsa
        - --service-account-signing-key-file=/secrets/{{.Secrets.ServiceAccountKey}}/id_rsa
        - --shutdown-delay-duration=0s
        readinessProbe:
          tcpSocket: {port: 443}
          periodSeconds: 1
        volumeMounts:
        {{- range .Secrets.All}}
        - {name: {{.}}, mountPath: /secrets/{{.}}, readOnly: true}
        {{- end}}
      volumes:
      {{- range .Secrets.All}}
      - {name: {{.}}, secret: {secretName: {{.}}}}
      {{- end}}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: kube-controller-manager
spec:
  selector:
    matchLabels: {app: kubernetes, role: controller-manager}
  template:
    metadata:
      labels: {app: kubernetes, role: controller-manager}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 1
      containers:
      - name: kube-controller-manager
        image: landscape/kube-controller-manager:{{.KubernetesVersion}}
        command:
        - /usr/local/bin/kube-controller-manager
        - --kubeconfig=/secrets/{{.Secrets.ControllerManager}}/kubeconfig
        - --leader-elect=false
        - --use-service-account-credentials
        - --service-account-private-key-file=/secrets/{{.Secrets.ServiceAccountKey}}/id_rsa
        - --root-ca-file=/secrets/{{.Secrets.CA}}/ca.crt
        - --cluster-signing-cert-file=/secrets/{{.Secrets.CA}}/ca.crt
        - --cluster-signing-key-file=/secrets/{{.Secrets.CA}}/ca.key
        - --allocate-node-cidrs=true
        - --cluster-cidr={{.PodCIDR}}
        - --service-cluster-ip-range={{.ServiceCIDR}}
        volumeMounts:
        {{- range .Secrets.All}}
        - {name: {{.}}, mountPath: /secrets/{{.}}, readOnly: true}
        {{- end}}
      volumes:
      {{- range .Secrets.All}}
      - {name: {{.}}, secret: {secretName: {{.}}}}
      {{- end}}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: kube-scheduler
spec:
  selector:
    matchLabels: {app: kubernetes, role: scheduler}
  template:
    metadata:
      labels: {app: kubernetes, role: scheduler}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 1
      containers:
      - name: kube-scheduler
        image: landscape/kube-scheduler:{{.KubernetesVersion}}
        command:
        - /usr/local/bin/kube-scheduler
        - --kubeconfig=/secrets/{{.Secrets.Scheduler}}/kubeconfig
        - --authentication-kubeconfig=/secrets/{{.Secrets.Scheduler}}/kubeconfig
        - --authorization-kubeconfig=/secrets/{{.Secrets.Scheduler}}/kubeconfig
        - --leader-elect=false
        volumeMounts:
        - {name: kubeconfig, mountPath: /secrets/{{.Secrets.Scheduler}}, readOnly: true}
      volumes:
      - {name: kubeconfig, secret: {secretName: {{.Secrets.Scheduler}}}}
