import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.header.Header;

public class ReadApproved {
    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", System.getenv("GROUNDWIRE_BROKERS"));
        settings.put("group.id", System.getenv().getOrDefault("GROUP", "read-approved"));
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        String prefix = System.getenv().getOrDefault("GROUNDWIRE_TOPIC_PREFIX", "groundwire.");
        Set<String> seen = new HashSet<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(prefix + "approved", prefix + "retractions"));
            while (seen.isEmpty()) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    Header id = record.headers().lastHeader("ce_id");
                    Header type = record.headers().lastHeader("ce_type");
                    if (id != null && type != null && seen.add(new String(id.value()))) {
                        System.out.println(new String(type.value()) + " " + record.key());
                    }
                }
                consumer.commitSync(); // after what was read is stored
            }
        }
    }
}
