"""Files with typed fields: scenarios, and the configuration of brokers and groups. Errors name file, line and field."""
